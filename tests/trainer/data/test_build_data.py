"""From a job's trainer section to batches."""

import sys
from pathlib import Path
from typing import Any

import pytest

from meshwright_api.errors import InvalidTrainer
from meshwright_api.trainer_config import TrainerConfig, trainer_config
from meshwright_trainer.data.build import build_data
from meshwright_trainer.data.errors import DatasetError, SourceError


def config(data: dict[str, Any], **more: Any) -> TrainerConfig:
    section = {"model": {"name": "gpt3"}, "data": data, "steps": 2, "batch": {"micro": 2, "sequenceLength": 16}}
    return trainer_config({**section, **more}, 1)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for number in range(40):
        (tmp_path / f"{number}.txt").write_text(f"this is text number {number}; " * 5)
    return tmp_path


def test_text_becomes_windows_and_an_evaluation(texts: Path) -> None:
    data = build_data(config({"source": str(texts)}))
    (batch,) = data.loader(0, 1).window(1).micro_batches
    assert batch.tokens.shape == batch.labels.shape == (2, 16)
    assert data.vocabulary_size == 259
    assert data.heldout is not None
    assert sum(float(b.weights.sum()) for b in data.evaluation(0, 1)) > 0


def test_data_to_evaluate_on_are_not_trained_on_and_with_a_source_nothing_is_held_out(texts: Path) -> None:
    split = build_data(config({"source": str(texts)}))
    other = build_data(config({"source": str(texts)}, evaluation={"source": str(texts / "0.txt")}))
    assert split.heldout is not None
    assert other.heldout is not None
    assert sum(map(len, other.train)) > sum(map(len, split.train))
    assert len(other.heldout) == 8  # 5 x 23 bytes and the end, in samples of 16


def test_a_folder_of_json_lines_is_judged_on_too(texts: Path, tmp_path: Path) -> None:
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "a.jsonl").write_text('{"text": "twelve bytes"}\n')
    data = build_data(config({"source": str(texts / "1.txt")}, evaluation={"source": str(tmp_path / "lines")}))
    assert data.heldout is not None
    assert data.heldout[0]["weights"].sum() == 13


def test_the_fingerprint_follows_text_length_weights_and_seed_but_not_the_folder(texts: Path, tmp_path: Path) -> None:
    base = build_data(config({"source": str(texts)})).fingerprint
    assert build_data(config({"sources": [{"source": f"file://{texts}", "weight": 3}]})).fingerprint == base
    assert build_data(config({"source": str(texts)}, seed=1)).fingerprint != base
    assert build_data(config({"source": str(texts)}, batch={"sequenceLength": 8})).fingerprint != base
    (texts / "0.txt").write_text("another text")
    assert build_data(config({"source": str(texts)})).fingerprint != base


def test_a_mixture_draws_by_weight(texts: Path) -> None:
    sources = [{"source": str(texts / "1.txt"), "weight": 0.75}, {"source": str(texts / "2.txt"), "weight": 0.25}]
    data = build_data(config({"sources": sources}))
    assert [data.order[sample].source for sample in range(8)].count(0) == 6
    assert data.heldout is None
    with pytest.raises(SourceError, match=r"evaluation\.source"):
        data.evaluation(0, 1)


def test_no_data_at_all_is_said() -> None:
    with pytest.raises(SourceError, match=r"spec\.trainer\.data: give a source"):
        build_data(config({}))


PLUGIN = """
import torch

class Squares:
    vocabulary_size = 7
    fingerprint = "squares"

    def __init__(self, size):
        self.size = size
        self.heldout = [self[0]]

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return {"tokens": torch.tensor([index % 7]), "labels": torch.tensor([index * index % 7])}

broken = 3

def nothing():
    return 5

def text():
    return "abc"
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_squares.py").write_text(PLUGIN)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "own_squares", raising=False)


@pytest.mark.usefixtures("plugin")
def test_a_dataset_of_ones_own_is_used_as_it_is() -> None:
    data = build_data(config({"factory": "own_squares:Squares", "arguments": {"size": 12}}))
    (batch,) = data.loader(0, 1).window(1).micro_batches
    assert (batch.tokens.pow(2) % 7 == batch.labels).all()
    assert data.vocabulary_size == 7
    assert data.fingerprint["dataset"] == "squares"
    (judged,) = data.evaluation(0, 1)
    assert judged.sample_id.tolist() == [0, -1]


@pytest.mark.usefixtures("plugin")
@pytest.mark.parametrize(
    ("factory", "arguments", "message"),
    [
        ("own_absent:f", {}, r"spec\.trainer\.data\.factory: .*'own_absent' cannot be imported.* spec\.trainer\.code"),
        ("own_squares:absent", {}, "has no 'absent'"),
        ("own_squares:broken", {}, "is a int and cannot be called"),
        ("own_squares:Squares", {"size": 1, "sise": 1}, r"spec\.trainer\.data\.arguments: .*sise"),
        ("own_squares:nothing", {}, "returned a int, not a dataset"),
        ("own_squares:text", {}, "returned a str, not a dataset"),
        ("own_squares:Squares", {"size": 0}, "without samples"),
    ],
)
def test_a_factory_that_cannot_be_used_is_named(factory: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((DatasetError, InvalidTrainer), match=message):
        build_data(config({"factory": factory, "arguments": arguments}))
