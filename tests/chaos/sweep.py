"""The crash sweep: the operator is killed before and after each of its mutating calls, once each."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass

from tests.chaos.arena import Arena
from tests.chaos.calls import Call
from tests.chaos.processes import Supervisor
from tests.chaos.proxy import Moment
from tests.chaos.runs import Outcome, elapsed, see_through
from tests.chaos.scripts import SCRIPTS


@dataclass(frozen=True, slots=True)
class Point:
    """Where the operator is killed: at its `count`-th counted call, or write of the Lease; 0 stands for never."""

    count: int = 0
    moment: Moment = Moment.BEFORE
    leases: bool = False

    def __str__(self) -> str:
        return f"{'lease-' * self.leases}{self.count:03d}-{self.moment}"

    def is_at(self, count: int, call: Call, moment: Moment) -> bool:
        """Whether this is the point."""
        return (count, moment, call.resource == "leases") == (self.count, self.moment, self.leases)


@dataclass
class KillAt:
    """The hook that kills, once. *Before*: the call is not sent. *After*: it was carried out, and nobody hears it."""

    point: Point
    operator: Supervisor | None = None
    fired: Call | None = None

    async def __call__(self, count: int, call: Call, moment: Moment) -> bool:
        """Kills if this is the point."""
        if self.fired or not self.point.is_at(count, call, moment):
            return True
        assert self.operator
        assert self.operator.process
        self.fired = call
        process = self.operator.process
        process.kill()
        await process.ended.wait()
        return False


async def run_point(arena: Arena, script: str, point: Point) -> Outcome:
    """One life with one kill."""
    async with arena.slot() as slot:
        began, hook = time.monotonic(), KillAt(point)
        life = slot.life()
        label = f"{script}-{point}"
        async with slot.stage(label, hook=hook, identity="operator-0") as stage:
            hook.operator = stage.operator
            violations = await see_through(
                slot,
                life,
                (stage,),
                lambda: SCRIPTS[script](life),
                undisturbed=not point.count,
                uninstalled=point.count % 2 == 1,
            )
        note = f"killed {point.moment} {hook.fired}" if hook.fired else ""
        log = arena.logs / f"{label}.log"
        return Outcome(label, violations, stage.proxy.counted, stage.operator.starts, elapsed(began), note, log)


async def sweep(arena: Arena, script: str, first: int = 1) -> AsyncIterator[Outcome]:
    """An undisturbed life, which says how many points there are, then one life per point.

    Args:
        arena: Where.
        script: Which life.
        first: The first call that is swept; those before it may have been swept by a shorter script.
    """
    baseline = await run_point(arena, script, Point())
    yield baseline
    points = [Point(count, moment) for count in range(first, baseline.counted + 1) for moment in Moment]
    async for outcome in all_of(arena, script, points):
        yield outcome


async def all_of(arena: Arena, script: str, points: Iterable[Point]) -> AsyncIterator[Outcome]:
    """As many at once as there are slots; in the order in which they end."""
    for done in asyncio.as_completed([asyncio.ensure_future(run_point(arena, script, point)) for point in points]):
        yield await done
