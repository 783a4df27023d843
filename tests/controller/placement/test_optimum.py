"""Placements against the exact optimum of an integer programme; `benchmarks/placement_optimum.py` takes many more."""

from __future__ import annotations

import pytest

from benchmarks.placement_optimum import Compared, compare

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def compared() -> list[Compared]:
    return list(compare(range(1000, 1014), seconds=3))


def test_verdicts_are_the_exact_ones_and_no_cost_is_below_the_optimum(compared: list[Compared]) -> None:
    assert len(compared) >= 8
    assert [c.seed for c in compared if not c.agree] == []


def test_costs_are_near_the_optimum_where_first_fit_is_far_from_it(compared: list[Compared]) -> None:
    placed = [c for c in compared if c.optimum and c.ours is not None and c.first_fit is not None]
    ratios = [c.ours / c.optimum for c in placed if c.optimum and c.ours is not None]
    naive = [c.first_fit / c.optimum for c in placed if c.optimum and c.first_fit is not None]
    assert sum(ratios) / len(ratios) <= 1.02
    assert max(ratios) <= 1.10
    assert sum(naive) / len(naive) >= 1.3
