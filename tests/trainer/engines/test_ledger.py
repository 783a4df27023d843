"""Bytes that are counted against the formulas of the algorithms."""

from __future__ import annotations

import pytest

from tests.trainer.parity.cells import Cell
from tests.trainer.pool import Pool

STEPS = 3


@pytest.mark.parametrize(
    ("data", "shard", "stage", "along_data", "along_shard"),
    [
        # In units of P, the parameters' bytes, for a step; ZeRO's paper, section 7, and Patarasuk and Yuan 2009.
        (4, 1, 0, 2 * 3 / 4, 0.0),
        (1, 2, 1, 0.0, 2 * 1 / 2),
        (1, 2, 2, 0.0, 2 * 1 / 2),
        (1, 2, 3, 0.0, 3 * 1 / 2),
        (2, 2, 3, 2 * 1 / 2 / 2, 3 * 1 / 2),
    ],
)
def test_bytes_by_axis_are_those_of_the_formula(
    pool: Pool, data: int, shard: int, stage: int, along_data: float, along_shard: float
) -> None:
    # Sizes that divide by 2, so that nothing is padded.
    cell = Cell("gpt3", data, shard, stage, width=8, vocabulary=32, length=8)
    for trace in pool.run(cell.ranks, "tests.trainer.parity.candidate:run", cell):
        total = 8 * sum(_elements(shape) for shape in trace.shapes.values())
        # Losses, weights and norms are a few numbers.
        assert trace.bytes_by_axis.get("data", 0) == pytest.approx(along_data * total * STEPS, abs=500)
        assert trace.bytes_by_axis.get("shard", 0) == pytest.approx(along_shard * total * STEPS, abs=500)


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
