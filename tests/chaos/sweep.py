"""The crash sweep: the operator is killed before and after each of its mutating calls, once each.

A life is a row of steps (create, a pod's exit, a deleted pod, ...), and before each the job has settled, whatever was
done to the operator until then. So one life can bear one kill per step: life number j kills at the j-th call of every
step.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from tests.chaos.arena import Arena, Stage
from tests.chaos.calls import Call
from tests.chaos.life import Shape
from tests.chaos.proxy import Moment
from tests.chaos.runs import Outcome, elapsed, see_through
from tests.chaos.scripts import SCRIPTS


@dataclass(frozen=True, slots=True)
class Point:
    """Where the operator is killed: at the `count`-th counted call of each step; 0 stands for never.

    With `leases`, at that write of its Lease instead, once in the life.
    """

    count: int = 0
    moment: Moment = Moment.BEFORE
    leases: bool = False

    def __str__(self) -> str:
        return f"{'lease-' * self.leases}{self.count:03d}-{self.moment}"


@dataclass
class KillAt:
    """The hook that kills. *Before*: the call is not sent. *After*: it was carried out, and nobody hears of it.

    Attributes:
        fired: The calls at which it did, each with its step.
        lengths: How many counted calls each step had.
    """

    point: Point
    stage: Stage | None = None
    fired: list[tuple[str, Call]] = field(default_factory=list)
    lengths: Counter[str] = field(default_factory=Counter)
    _step: str = ""
    _places: dict[int, tuple[str, int]] = field(default_factory=dict)
    _done: set[str] = field(default_factory=set)

    def begin(self, step: str) -> None:
        """A step begins."""
        self._step = step

    async def __call__(self, count: int, call: Call, moment: Moment) -> bool:
        """Kills if this is the point."""
        lease = call.resource == "leases"
        if not lease and moment is Moment.BEFORE:
            self.lengths[self._step] += 1
            self._places[count] = (self._step, self.lengths[self._step])
        step, place = ("lease", count) if lease else self._places[count]
        if step in self._done or self.point != Point(place, moment, lease):
            return True
        assert self.stage
        assert self.stage.operator.process
        self._done.add(step)
        self.fired.append((step, call))
        process = self.stage.operator.process
        process.kill()
        await process.ended.wait()
        return False


async def run_point(arena: Arena, script: str, point: Point, shape: Shape | None = None) -> tuple[Outcome, KillAt]:
    """One life with one kill per step."""
    async with arena.slot() as slot:
        began, hook = time.monotonic(), KillAt(point)
        life = slot.life(shape)
        life.on_step = hook.begin
        label = f"{script}-{point}"
        async with slot.stage(label, hook=hook, identity="operator-0") as stage:
            hook.stage = stage
            violations = await see_through(
                slot,
                life,
                (stage,),
                lambda: SCRIPTS[script](life),
                undisturbed=not point.count,
                uninstalled=point.count % 2 == 1,
            )
        note = f"killed {point.moment} " + ", ".join(f"{call} ({step})" for step, call in hook.fired)
        log = arena.logs / f"{label}.log"
        seconds, starts = elapsed(began), stage.operator.starts
        note = note if hook.fired else ""
        return Outcome(label, violations, stage.proxy.counted, starts, seconds, note, log, len(hook.fired)), hook


async def sweep(arena: Arena, script: str, shape: Shape | None = None) -> AsyncIterator[Outcome]:
    """An undisturbed life, which says how many calls its longest step has; then one life per such call and moment."""
    baseline, hook = await run_point(arena, script, Point(), shape)
    yield baseline
    points = [Point(count, moment) for count in range(1, max(hook.lengths.values()) + 1) for moment in Moment]
    points += [Point(1, moment, leases=True) for moment in Moment]
    runs = [asyncio.ensure_future(run_point(arena, script, point, shape)) for point in points]
    for done in asyncio.as_completed(runs):  # as many at once as there are slots
        yield (await done)[0]
