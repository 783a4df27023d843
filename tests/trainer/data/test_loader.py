"""The same steps for every mesh, accumulation, moment of resuming and number of threads."""

import itertools
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from meshwright_api.trainer_config import BatchConfig
from meshwright_trainer.batch import Batch, Window
from meshwright_trainer.data.dataset import Concatenated, collate
from meshwright_trainer.data.errors import DataError, DatasetError
from meshwright_trainer.data.loader import Consumed, Loader, evaluation_batches
from meshwright_trainer.data.order import Order


class Numbers:
    """Sample i is filled with i, so that a batch tells what it was made of."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __getitem__(self, index: int) -> Mapping[str, Tensor]:
        return {"tokens": torch.full((3,), index), "labels": torch.full((3,), index)}


def loader(*, size: int = 10, total: int = 8, micro: int = 1, rank: int = 0, ranks: int = 1, **more: Any) -> Loader:
    batch = BatchConfig(global_=total, micro=micro, sequence_length=3)
    return Loader([Numbers(size)], Order(4, [size]), batch, rank, ranks, **more)


def ids(window: Window) -> list[list[int]]:
    return [micro_batch.sample_id.tolist() for micro_batch in window.micro_batches]


LAYOUTS = [(micro, ranks) for micro, ranks in itertools.product((1, 2, 4), (1, 2, 4)) if 8 % (micro * ranks) == 0]


@pytest.mark.parametrize(("micro", "ranks"), LAYOUTS)
def test_t63_t66_each_epoch_is_seen_once_and_in_the_same_steps_by_every_layout(micro: int, ranks: int) -> None:
    log: list[list[int]] = []
    seen: Counter[int] = Counter()
    for step in range(1, 6):
        windows = [loader(micro=micro, rank=rank, ranks=ranks).window(step) for rank in range(ranks)]
        assert all(len(window.micro_batches) == 8 // micro // ranks for window in windows)
        merged = [list(group) for rows in zip(*map(ids, windows), strict=True) for group in rows]
        log.append(list(itertools.chain(*merged)))
        for window in windows:
            for micro_batch in window.micro_batches:
                assert micro_batch.size == micro
                seen.update(micro_batch.tokens[:, 0].tolist())
    assert log == [list(range(8 * step, 8 * step + 8)) for step in range(5)]
    assert seen == dict.fromkeys(range(10), 4)


@pytest.mark.parametrize("resumed_at", [1, 3, 4])
def test_t65_t67_t69_a_resume_within_an_epoch_on_other_ranks_goes_on_as_if_nothing_was(resumed_at: int) -> None:
    def contents(windows: list[Window]) -> list[list[int]]:
        rows = zip(*([b.tokens[:, 0].tolist() for b in w.micro_batches] for w in windows), strict=True)
        return [list(itertools.chain(*row)) for row in rows]

    undisturbed = [contents([loader().window(step)]) for step in range(1, 8)]
    origin = Consumed(resumed_at, resumed_at * 8)
    resumed = [
        contents([loader(rank=rank, ranks=4, origin=origin).window(step) for rank in range(4)])
        for step in range(resumed_at + 1, 8)
    ]
    flat = [list(itertools.chain(*step)) for step in undisturbed[resumed_at:]]
    assert [list(itertools.chain(*step)) for step in resumed] == flat


def test_another_global_batch_after_a_resume_skips_and_repeats_nothing() -> None:
    first = [loader(total=8).window(step) for step in (1, 2)]
    then = loader(total=6, origin=Consumed(2, 16))
    drawn = [sample for window in [*first, then.window(3), then.window(4)] for sample in itertools.chain(*ids(window))]
    assert drawn == list(range(28))
    assert then.samples(4) == 28
    with pytest.raises(DataError, match="before step 3"):
        then.window(2)


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_reading_ahead_changes_nothing(workers: int) -> None:
    windows = list(loader(total=4).windows(2, 9, workers))
    assert [window.step for window in windows] == list(range(2, 10))
    assert list(map(ids, windows)) == [ids(loader(total=4).window(step)) for step in range(2, 10)]


def test_a_reader_ahead_stops_when_it_is_left_and_passes_errors_on() -> None:
    windows = loader().windows(1, 1000, 2)
    assert next(windows).step == 1
    windows.close()  # type: ignore[attr-defined]

    class Broken(Numbers):
        def __getitem__(self, index: int) -> Mapping[str, Tensor]:
            raise RuntimeError("disk on fire")

    broken = Loader([Broken(3)], Order(0, [3]), BatchConfig(global_=1, micro=1, sequence_length=3), 0, 1)
    with pytest.raises(RuntimeError, match="disk on fire"):
        next(broken.windows(1, 3, 2))


def test_a_global_batch_that_does_not_divide_is_refused() -> None:
    with pytest.raises(DataError, match="8 is no multiple of micro 1 x 3 ranks"):
        loader(ranks=3)


@pytest.mark.parametrize("size", [1, 5, 16, 100])
def test_an_evaluation_judges_the_same_samples_on_any_number_of_ranks(size: int) -> None:
    def judged(ranks: int) -> tuple[Counter[int], float, set[int]]:
        batches = [evaluation_batches(Numbers(size), 2, 4, rank, ranks) for rank in range(ranks)]
        flat = list(itertools.chain(*batches))
        valid = Counter(s for b in flat for s in b.sample_id.tolist() if s >= 0)
        return valid, sum(float(b.weights.sum()) for b in flat), {len(own) for own in batches}

    alone, weight, _ = judged(1)
    assert weight == 3 * sum(alone.values())
    assert len(alone) == min(size, 8)
    assert set(alone.values()) == {1}
    for ranks in (2, 3, 4):
        samples, total, lengths = judged(ranks)
        assert (samples, total) == (alone, weight)
        assert len(lengths) == 1


def test_samples_that_fill_up_are_marked_in_every_field() -> None:
    (batch,) = evaluation_batches(Numbers(1), 2, 1, 0, 1)
    assert batch.sample_id.tolist() == [0, -1]
    assert batch.weights.tolist() == [[1, 1, 1], [0, 0, 0]]
    assert batch.document_id.tolist() == [[0, 0, 0], [-1, -1, -1]]


def test_a_sample_may_be_no_text() -> None:
    image = {"tokens": torch.zeros(3, 8, 8), "labels": torch.tensor(4), "age": torch.tensor([1.0])}
    batch: Batch = collate([image, image], [0, 1])
    assert batch.tokens.shape == (2, 3, 8, 8)
    assert batch.weights.tolist() == [1.0, 1.0]
    assert batch.extra["age"].shape == (2, 1)


def test_samples_that_do_not_fit_are_named() -> None:
    whole = {"tokens": torch.zeros(3, dtype=torch.int64), "labels": torch.zeros(3, dtype=torch.int64)}
    with pytest.raises(DatasetError, match="no tensor labels; it has tokens"):
        collate([{"tokens": whole["tokens"]}], [0])
    with pytest.raises(DatasetError, match=r"samples 8 and 9 .*labels is \(3,\) .* \(4,\)"):
        collate([whole, {**whole, "labels": torch.zeros(4, dtype=torch.int64)}], [8, 9])
    with pytest.raises(DatasetError, match="only one of them has age"):
        collate([whole, {**whole, "age": torch.zeros(1)}], [8, 9])


def test_concatenated_datasets_follow_each_other() -> None:
    both = Concatenated((Numbers(2), Numbers(3)))
    assert [int(both[i]["tokens"][0]) for i in range(len(both))] == [0, 1, 0, 1, 2]
    with pytest.raises(IndexError):
        both[5]
