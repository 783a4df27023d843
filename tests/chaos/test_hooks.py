"""The hook of the sweep kills at the same place of every step, once, whatever order answers come in."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from tests.chaos.arena import Stage
from tests.chaos.calls import Call
from tests.chaos.proxy import Moment
from tests.chaos.sweep import KillAt, Point


class Victim:
    """Stands for a stage, its operator and its process at once."""

    def __init__(self) -> None:
        self.operator = self.process = self
        self.kills = 0
        self.ended = asyncio.Event()
        self.ended.set()

    def kill(self) -> None:
        self.kills += 1


def hook_for(point: Point) -> tuple[KillAt, Victim]:
    victim = Victim()
    return KillAt(point, cast(Stage, victim)), victim


def call(number: int, resource: str = "pods") -> Call:
    return Call(number, "POST", "/", "create", resource)


@pytest.mark.parametrize("moment", Moment)
async def test_kills_at_the_same_place_of_every_step(moment: Moment) -> None:
    hook, victim = hook_for(Point(2, moment))
    killed = []
    for step, numbers in {"create": range(1, 4), "exit": range(4, 7)}.items():
        hook.begin(step)
        for number in numbers:
            for now in Moment:
                if not await hook(number, call(number), now):
                    killed.append((step, number, now))
    assert killed == [("create", 2, moment), ("exit", 5, moment)]
    assert victim.kills == 2
    assert hook.lengths == {"create": 3, "exit": 3}


async def test_answers_that_come_after_later_calls_keep_their_place() -> None:
    hook, victim = hook_for(Point(1, Moment.AFTER))
    hook.begin("create")
    for number in (1, 2, 3):
        assert await hook(number, call(number), Moment.BEFORE)
    hook.begin("exit")
    assert await hook(3, call(3), Moment.AFTER)
    assert not await hook(1, call(1), Moment.AFTER)
    assert victim.kills == 1


async def test_writes_of_the_lease_have_numbers_of_their_own() -> None:
    hook, victim = hook_for(Point(1, Moment.BEFORE, leases=True))
    assert await hook(1, call(1), Moment.BEFORE)
    assert not await hook(1, call(1, "leases"), Moment.BEFORE)
    assert await hook(2, call(2, "leases"), Moment.BEFORE)
    assert victim.kills == 1
    assert hook.lengths == {"": 1}
