"""Whole runs through the front doors: train, stop, go on, evaluate, generate, export, from a shell and a notebook."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

from meshwright_trainer.batch import Window
from meshwright_trainer.checkpoint.digest import digest
from meshwright_trainer.checkpoint.errors import StorageError
from meshwright_trainer.checkpoint.reader import Checkpoint
from meshwright_trainer.checkpoint.storage import LocalStorage
from meshwright_trainer.cli import main
from meshwright_trainer.engines.synchronous import SynchronousEngine
from meshwright_trainer.loop import Ending
from meshwright_trainer.notebook import train
from meshwright_trainer.optim.optimizer import RuleOptimizer

ROOT = Path(__file__).resolve().parents[3]
WORDS = b"rank shard mesh stage ring tensor data gang node switch rail leaf "


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    """A run sets torch up for its own process."""
    before = torch.are_deterministic_algorithms_enabled()
    path = list(sys.path)
    yield
    torch.use_deterministic_algorithms(before)
    sys.path[:] = path


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job of some seconds, as a file; its checkpoints are in `checkpoints` beside it."""
    (tmp_path / "text").mkdir()
    for number in range(20):
        (tmp_path / "text" / f"{number}.txt").write_bytes(WORDS[number:] * 12)
    section: dict[str, Any] = {
        "seed": 3,
        "model": {"name": "gpt3", "preset": "tiny", "layers": 2, "hiddenSize": 32, "heads": 2, "dropout": 0.1},
        "data": {"source": str(tmp_path / "text")},
        "batch": {"global": 8, "micro": 4, "sequenceLength": 64},
        "steps": 12,
        "optimizer": {"learningRate": 1e-2, "maxGradNorm": 1.0},
        "checkpoint": {"path": str(tmp_path / "checkpoints"), "everySteps": 5},
        "evaluation": {"everySteps": 6, "batches": 2},
        "logging": {"everySteps": 1},
    }
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(section))
    return path


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def state_of(folder: Path) -> str:
    return digest(Checkpoint.open(str(folder)))


def test_a_run_is_told_kept_and_judged_alike(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(job)]) == 0
    told = lines(capsys.readouterr().out)
    assert [line["step"] for line in told if line["event"] == "step"] == list(range(1, 13))
    assert [line["step"] for line in told if line["event"] == "checkpoint"] == [5, 10, 12]
    judged = [line for line in told if line["event"] == "evaluation"]
    assert [line["step"] for line in judged] == [6, 12]
    assert judged[1]["loss"] < judged[0]["loss"]
    assert told[-1] == {"event": "finished", "step": 12}

    assert main(["evaluate", str(job.parent / "checkpoints")]) == 0
    [again] = lines(capsys.readouterr().out)
    assert (again["step"], again["loss"], again["weight"]) == (12, judged[1]["loss"], judged[1]["weight"])


def test_a_run_that_is_done_is_not_trained_again(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", str(job)])
    before = state_of(job.parent / "checkpoints")
    capsys.readouterr()
    assert main(["train", str(job)]) == 0
    told = lines(capsys.readouterr().out)
    assert [line["event"] for line in told] == ["started", "finished"]
    assert state_of(job.parent / "checkpoints") == before
    assert main(["train", str(job), "--set", "steps=9"]) == 0, "fewer steps than were done are done too"
    assert lines(capsys.readouterr().out)[-1] == {"event": "finished", "step": 12}


def test_t73_a_resumed_run_goes_by_its_own_job_and_not_by_the_one_that_wrote_the_checkpoint(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    constant = ["--set", "optimizer.learningRateSchedule={name: Constant, warmupSteps: 0}"]
    assert main(["train", str(job), *constant, "--set", "steps=5"]) == 0
    sizes: list[list[int]] = []
    rates: list[float] = []
    run, update = SynchronousEngine.run, RuleOptimizer.update

    def sized(engine: SynchronousEngine, window: Window) -> Any:
        sizes.append([batch.size for batch in window.micro_batches])
        return run(engine, window)

    def rated(optimizer: RuleOptimizer, gradients: Any, *, rate: float, count: int) -> None:
        rates.append(rate)
        update(optimizer, gradients, rate=rate, count=count)

    monkeypatch.setattr(SynchronousEngine, "run", sized)
    monkeypatch.setattr(RuleOptimizer, "update", rated)
    capsys.readouterr()
    changed = ["--set", "steps=7", "--set", "batch.micro=2", "--set", "optimizer.learningRate=5e-3"]
    assert main(["train", str(job), *constant, *changed]) == 0
    assert lines(capsys.readouterr().out)[0]["resumed_from_step"] == 5
    assert sizes == [[2, 2, 2, 2]] * 2
    assert rates == [5e-3] * 2


def test_equal_seeds_write_equal_texts(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", str(job)])
    texts = []
    for seed in ("1", "1", "2"):
        capsys.readouterr()
        main(["generate", str(job.parent / "checkpoints"), "--prompt", "ring ", "--count", "40", "--seed", seed])
        texts.append(capsys.readouterr().out)
    assert texts[0].startswith("ring ")
    assert texts[0] == texts[1] != texts[2]


def test_transformers_loads_what_is_exported(job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["train", str(job)])
    assert main(["export", str(tmp_path / "checkpoints"), "--output", str(tmp_path / "out")]) == 0
    weights = load_file(tmp_path / "out" / "model.safetensors")
    model = GPT2LMHeadModel(GPT2Config(vocab_size=259, n_positions=256, n_embd=32, n_layer=2, n_head=2))
    model.load_state_dict(weights, strict=False)
    assert weights.keys() >= {name for name, _ in model.named_parameters()}
    assert main(["export", str(tmp_path / "checkpoints"), "--output", str(tmp_path / "out")]) == 2
    assert "is not empty" in capsys.readouterr().err


def test_sigterm_means_a_checkpoint_and_going_on_changes_no_bit(job: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    words = [sys.executable, "-m", "meshwright_trainer", "train", str(job), "--set", "checkpoint.everySteps=100"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        told = []
        for line in process.stdout:
            told.append(json.loads(line))
            if told[-1]["event"] == "step" and told[-1]["step"] == 4:
                process.send_signal(signal.SIGTERM)
    assert process.returncode == 128 + signal.SIGTERM
    stopped = told[-1]["step"]
    assert told[-2:] == [{"event": "checkpoint", "step": stopped}, {"event": "terminated", "step": stopped}]
    assert 4 <= stopped < 12
    subprocess.run(words, env=environment, check=True, capture_output=True)
    subprocess.run(
        [*words, "--set", f"checkpoint.path={tmp_path}/whole"], env=environment, check=True, capture_output=True
    )
    assert state_of(tmp_path / "checkpoints") == state_of(tmp_path / "whole")


def test_processes_on_one_machine_train_a_model_of_ones_own_and_stop_on_request(tmp_path: Path) -> None:
    """Nothing but records is said, and the exit code is the one of a single process."""
    own = ROOT / "examples" / "own_model"
    words = [sys.executable, "-m", "meshwright_trainer", "train", str(own / "job.yaml"), "--processes", "2"]
    for override in (f"code={{path: {own}}}", f"checkpoint.path={tmp_path}", "steps=9999", "logging.everySteps=1"):
        words += ["--set", override]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stderr
        told = []
        for line in process.stdout:
            told.append(json.loads(line))
            if told[-1]["event"] == "step" and told[-1]["step"] == 2:
                process.send_signal(signal.SIGTERM)
        assert process.stderr.read() == ""
    assert process.returncode == 128 + signal.SIGTERM
    assert told[0]["world_size"] == 2
    assert [line["event"] for line in told[-2:]] == ["checkpoint", "terminated"]


def test_what_is_wrong_with_a_job_is_said_once_for_all_processes(job: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["train", str(job), "--processes", "2", "--set", "steps=0"]) == 2
    said = capfd.readouterr().err
    assert said.splitlines() == ["meshwright-trainer: spec.trainer.steps: 0 is too small; the least is 1"]


def test_a_disk_that_is_full_is_no_fault_of_the_job(
    job: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = LocalStorage.write

    def full(storage: LocalStorage, name: str, chunks: Iterable[memoryview]) -> None:
        if name.startswith("step-00000010"):
            raise StorageError(f"{name} cannot be written: No space left on device")
        written(storage, name, chunks)

    monkeypatch.setattr(LocalStorage, "write", full)
    assert main(["train", str(job)]) == 1
    assert "step-00000010.a1 was not kept" in capsys.readouterr().err
    monkeypatch.undo()
    assert main(["train", str(job)]) == 0
    assert lines(capsys.readouterr().out)[0]["resumed_from_step"] == 5


def test_a_notebook_gets_the_figures(job: Path) -> None:
    section = yaml.safe_load(job.read_text())
    run = train({**section, "checkpoint": None})
    assert run.ending is Ending.FINISHED
    losses = run.figures("loss")
    assert list(losses) == list(range(1, 13))
    assert losses[12] < losses[1]
    assert run.figures("loss", event="evaluation").keys() == {6, 12}


def test_a_model_and_a_dataset_of_ones_own_are_trained_kept_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What docs/trainer.md shows."""
    own = ROOT / "examples" / "own_model"
    arguments = [str(own / "job.yaml"), "--set", f"code={{path: {own}}}"]
    arguments += ["--set", f"checkpoint.path={tmp_path}/kept"]
    assert main(["train", *arguments]) == 0
    told = lines(capsys.readouterr().out)
    judged = [line for line in told if line["event"] == "evaluation"]
    assert judged[-1]["correct"] > majority(own) + 0.2
    assert main(["evaluate", str(tmp_path / "kept")]) == 0
    assert lines(capsys.readouterr().out)[0]["loss"] == judged[-1]["loss"]
    assert main(["generate", str(tmp_path / "kept")]) == 2
    assert "does not continue text" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "kept"), "--output", str(tmp_path / "out")]) == 2
    assert "--names meshwright" in capsys.readouterr().err
    assert main(["export", str(tmp_path / "kept"), "--output", str(tmp_path / "out"), "--names", "meshwright"]) == 0
    assert "kinds.weight" in load_file(tmp_path / "out" / "model.safetensors")


def majority(own: Path) -> float:
    """Share of the commonest kind in the held-out text: what a model without a clue gets right."""
    sys.path.insert(0, str(own))
    import tagger

    heldout = tagger.python_source().heldout
    counts = torch.bincount(torch.cat([heldout[i]["labels"] for i in range(len(heldout))]))
    return float(counts.max() / counts.sum())


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("model.name=gpt4", "spec.trainer.model.name: gpt4: this version has no such model; use gpt3 or bert"),
        ("data.source=/nowhere", "there is no file or folder /nowhere"),
        ("batch.global=6", "spec.trainer.batch.global: 6 is no multiple"),
        ("parallelism.tensor=2", "spec.trainer.parallelism"),
        ("checkpoint.path=s3://bucket/run", "s3:// URL"),
        (
            "objective.arguments={probability: 1}",
            "arguments: NextToken knows no probability; its arguments: label_smoo",
        ),
        ("objective.arguments={z_loss: x}", "spec.trainer.objective.arguments.z_loss: must be a number"),
        ("evaluation.source=/nowhere", "there is no file or folder /nowhere"),
        ("data.source=JOB", "spec.trainer.evaluation.source: the training data are too few documents"),
        ("model.factory=nowhere:model", "needs either a name or a factory"),
    ],
)
def test_a_job_that_cannot_be_says_what_to_do(
    job: Path, override: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", str(job), "--set", override.replace("JOB", str(job))]) == 2
    said = capsys.readouterr().err
    assert said.startswith("meshwright-trainer: ")
    assert says in said


def test_there_is_nothing_to_judge_before_there_is_a_checkpoint(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in (["evaluate"], ["generate"], ["export", "--output", str(tmp_path / "out")]):
        assert main([command[0], str(tmp_path), *command[1:]]) == 2
        assert "no checkpoint that counts" in capsys.readouterr().err


def test_a_trained_tokenizer_is_kept_with_the_checkpoints(
    job: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["tokenizer", "--source", str(tmp_path / "text"), "--size", "300", "--output", str(tmp_path / "bpe.json")]
    assert main(words) == 0
    assert lines(capsys.readouterr().out)[0]["vocabulary_size"] <= 300
    assert main(words) == 2
    assert "exists" in capsys.readouterr().err

    own = ["--set", f"data.tokenizer={{name: BPE, path: {tmp_path}/bpe.json}}", "--set", "steps=2"]
    assert main(["train", str(job), *own]) == 0
    (tmp_path / "bpe.json").unlink()
    assert main(["generate", str(tmp_path / "checkpoints"), "--prompt", "ring ", "--count", "5"]) == 0
    assert "ring " in capsys.readouterr().out
