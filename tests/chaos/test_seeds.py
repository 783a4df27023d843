"""Some random runs; `make chaos SEEDS=n` runs as many as asked."""

from __future__ import annotations

import pytest

from tests.chaos.arena import Arena
from tests.chaos.plans import SECONDS, Deed, Signal, plan_of
from tests.chaos.seeds import seeds

SEEDS = range(1, 7)


@pytest.mark.cluster
@pytest.mark.slow
async def test_random_faults_end_as_they_should(arena: Arena) -> None:
    outcomes = [outcome async for outcome in seeds(arena, SEEDS)]
    red = [f"{o}\n{plan_of(int(o.label.split()[1]))}\n{o.tail()}" for o in outcomes if o.violations]
    assert red == []
    assert len(outcomes) == len(SEEDS)


def test_a_seed_is_the_same_plan_every_time() -> None:
    assert plan_of(17) == plan_of(17)
    assert len({str(plan_of(seed)) for seed in range(50)}) == 50


def test_all_faults_are_calmed_before_the_verdict() -> None:
    windows = [window for seed in range(300) for window in plan_of(seed).schedule.windows]
    assert all(0 <= window.start < window.end <= SECONDS for window in windows)


def test_three_hundred_seeds_cover_every_kind_of_fault_and_deed() -> None:
    plans = [plan_of(seed) for seed in range(1, 301)]
    faults = {(w.fault.kind, w.fault.status) for plan in plans for w in plan.schedule.windows}
    assert {status for _, status in faults} == {0, 401, 403, 409, 410, 429, 500, 503, 504}
    assert len({kind for kind, _ in faults}) == 12
    assert {h.deed for plan in plans for h in plan.happenings} == set(Deed)
    assert {b.signal for plan in plans for b in plan.blows} == set(Signal)
