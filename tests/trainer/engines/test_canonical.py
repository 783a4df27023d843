"""Canonical order: the same bits on every split of the same micro-batches over data, shard and accumulation."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
import torch

from meshwright_trainer.collectives.canonical import BinaryCounter, halving_sum, tree_sum
from tests.trainer.parity.cells import Cell
from tests.trainer.pool import Pool

TASK = "tests.trainer.engines.tasks:canonical"
STEPS = 20


def cell(data: int, shard: int, stage: int, accumulation: int) -> Cell:
    return Cell("gpt3", data, shard, stage, accumulation, dropout=0.1, width=8, precision="FP32")


def assembled(ranks: list[dict[str, Any]]) -> dict[str, Any]:
    """Whole tensors from the boxes of all ranks."""
    tensors: dict[str, Any] = {}
    for pieces in ranks:
        for name, (shape, (offsets, values)) in pieces.items():
            whole = tensors.setdefault(name, np.full(shape, np.nan, values.dtype))
            whole[tuple(slice(o, o + n) for o, n in zip(offsets, values.shape, strict=True))] = values
    return tensors


def sha256(ranks: list[dict[str, Any]]) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(assembled(ranks).items()):
        assert not np.isnan(tensor).any()
        digest.update(name.encode() + tensor.tobytes())
    return digest.hexdigest()


@pytest.fixture(scope="module")
def alone(pool: Pool) -> str:
    return sha256(pool.run(1, TASK, cell(1, 1, 0, 4), STEPS))


@pytest.mark.parametrize(
    ("data", "shard", "stage"),
    [
        (4, 1, 0),
        (2, 2, 1),
        (1, 2, 2),
        (2, 2, 3),
        *(pytest.param(*m, marks=pytest.mark.slow) for m in ((2, 1, 0), (1, 2, 1), (1, 4, 1), (2, 2, 2), (1, 4, 3))),
    ],
)
def test_weights_and_optimizer_state_have_the_bits_of_one_process(
    pool: Pool, alone: str, data: int, shard: int, stage: int
) -> None:
    layout = cell(data, shard, stage, 4 // (data * shard))
    assert sha256(pool.run(layout.ranks, TASK, layout, STEPS)) == alone


def test_the_tree_does_not_depend_on_where_ranks_end() -> None:
    terms = [torch.randn(5, generator=torch.Generator().manual_seed(i)) for i in range(24)]
    alone = BinaryCounter()
    for term in terms:
        alone.add([term])
    expected = alone.take()[0]
    for ranks in (2, 4, 8):
        counter = BinaryCounter()
        for first in range(0, len(terms), ranks):
            counter.add([tree_sum(terms[first : first + ranks])])
        assert torch.equal(counter.take()[0], expected)


def test_the_counter_adds_what_it_is_given() -> None:
    for count in range(1, 20):
        counter = BinaryCounter()
        for i in range(count):
            counter.add([torch.tensor(2.0**i, dtype=torch.float64)])
        assert counter.take()[0].item() == 2.0**count - 1


def test_the_counter_keeps_the_logarithm_of_what_it_is_given() -> None:
    counter = BinaryCounter()
    for i in range(1, 1000):
        counter.add([torch.zeros(())])
        assert len(counter._waiting) == i.bit_count()


@pytest.mark.parametrize("length", [0, 1, 2, 3, 7, 64, 1001])
def test_halving_adds_everything(length: int) -> None:
    x = torch.randn(3, length, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert torch.allclose(halving_sum(x), x.sum(-1), rtol=1e-13, atol=1e-13)
