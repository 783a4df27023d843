"""The operator is killed before and after every mutating call of a start and of an incident."""

from __future__ import annotations

import pytest

from tests.chaos.arena import Arena
from tests.chaos.life import Shape
from tests.chaos.runs import Outcome
from tests.chaos.scripts import SCRIPTS
from tests.chaos.sweep import Point, run_point, sweep

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


def red(outcomes: list[Outcome]) -> list[str]:
    return [f"{outcome}\n{outcome.tail()}" for outcome in outcomes if outcome.violations]


async def test_start_and_incident_survive_a_kill_before_and_after_every_call(arena: Arena) -> None:
    """K03 and others: each incident is counted once and no pod is made twice, whenever the operator dies."""
    outcomes = [outcome async for outcome in sweep(arena, "incident", Shape(replicas=2))]
    assert red(outcomes) == []
    assert len(outcomes) > 30
    assert sum(outcome.points for outcome in outcomes) > 40


async def test_a_whole_life_is_as_cheap_as_it_says_and_a_quiet_one_is_free(arena: Arena) -> None:
    """The write budget of an undisturbed life with four incidents; and no call at all while nothing happens."""
    outcome, _ = await run_point(arena, "full", Point())
    assert red([outcome]) == []
    async with arena.slot() as slot:
        life = slot.life()
        async with slot.stage("quiet", settings={"resync-seconds": "0.5"}) as stage:
            await SCRIPTS["start"](life)
            reads = ("list", "trainingjobs")
            await stage.proxy.until(lambda: stage.proxy.calls[reads] > 0)
            quiet_since, seen = stage.proxy.counted, stage.proxy.calls[reads]
            events = stage.proxy.calls["create", "events"]
            await stage.proxy.until(lambda: stage.proxy.calls[reads] >= seen + 4)
            told = stage.proxy.calls["create", "events"] - events
            assert stage.proxy.counted - told == quiet_since
            await life.delete()
            await life.gone()
