"""Two operators at once: a leader that was stopped in front of a call goes on when another leads."""

from __future__ import annotations

import pytest

from tests.chaos.arena import Arena
from tests.chaos.leaders import pairs

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.mark.parametrize(("script", "calls"), [("start", range(1, 10)), ("called-off", range(6, 9))])
async def test_a_late_call_of_an_old_leader_changes_nothing(arena: Arena, script: str, calls: range) -> None:
    outcomes = [outcome async for outcome in pairs(arena, script, calls)]
    assert [f"{o}\n{o.tail()}" for o in outcomes if o.violations] == []
    assert sum(bool(outcome.note) for outcome in outcomes) >= len(calls) - 2
