"""Two operators at once: a leader that was stopped in front of a call goes on when another leads."""

from __future__ import annotations

import pytest

from tests.chaos.arena import Arena
from tests.chaos.leaders import pairs

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


async def test_a_late_call_of_an_old_leader_changes_nothing(arena: Arena) -> None:
    outcomes = [outcome async for outcome in pairs(arena, "start", range(1, 13))]
    assert [f"{o}\n{o.tail()}" for o in outcomes if o.violations] == []
    held = [outcome for outcome in outcomes if outcome.note]
    assert len(held) >= 8
