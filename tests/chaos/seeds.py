"""Random runs: faults of the network and of the world and kills at once, then quiet, then the verdict."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Final

from tests.chaos.arena import QUICK_LEASE, Arena, Stage
from tests.chaos.life import Life, converges_seconds
from tests.chaos.plans import SECONDS, Blow, Deed, Happening, Plan, Signal, plan_of
from tests.chaos.runs import Outcome, elapsed, see_through


async def run_seed(arena: Arena, seed: int) -> Outcome:
    """One run."""
    plan = plan_of(seed)
    async with arena.slot() as slot:
        began = time.monotonic()
        life = slot.life(plan.shape)
        async with slot.stage(f"seed-{seed}", settings=QUICK_LEASE | {"progress-seconds": "1"}) as stage:
            walk = _Walk(plan, life, stage)
            violations = await see_through(slot, life, (stage,), walk.run, uninstalled=plan.uninstalled)
        happened = ", ".join(f"{kind} x{times}" for kind, times in sorted(stage.proxy.tally.counts.items()))
        note = f"{len(life.ledgers)} jobs, {walk.done} deeds, {stage.operator.starts} starts; {happened}"
        return Outcome(
            f"seed {seed}",
            violations,
            stage.proxy.counted,
            stage.operator.starts,
            elapsed(began),
            note,
            arena.logs / f"seed-{seed}.log",
        )


async def seeds(arena: Arena, numbers: Iterable[int]) -> AsyncIterator[Outcome]:
    """As many at once as there are slots; in the order in which they end."""
    for done in asyncio.as_completed([asyncio.ensure_future(run_seed(arena, number)) for number in numbers]):
        yield await done


class _Walk:
    """Carries out one plan."""

    def __init__(self, plan: Plan, life: Life, stage: Stage) -> None:
        self.done = 0
        self._plan, self._life, self._stage = plan, life, stage
        self._began = time.monotonic()

    async def run(self) -> None:
        """Disturbs until the time is over, calms everything, and waits for the end that is due."""
        self._began = time.monotonic()
        self._life.patience = lambda: max(0.0, SECONDS - self._now()) + converges_seconds()
        self._stage.proxy.begin(self._plan.schedule)
        blows = asyncio.ensure_future(self._strike())
        try:
            await self._live()
        finally:
            blows.cancel()
            self._stage.proxy.calm()
            if self._stage.operator.process:
                self._stage.operator.process.go_on()
        await self._life.settled()
        if not self._life.over():
            await self._life.succeed()

    async def _live(self) -> None:
        life = self._life
        await life.create()
        if self._plan.falsifies:
            life.ledger.slack = 5
        for happening in self._plan.happenings:
            await self._until(happening.at)
            await life.settled()
            if life.over() or self._now() > SECONDS:
                break
            await self._do(happening)
            self.done += 1
        await self._until(SECONDS)

    async def _strike(self) -> None:
        for blow in self._plan.blows:
            await self._until(blow.at)
            await self._hit(blow)

    async def _hit(self, blow: Blow) -> None:
        operator = self._stage.operator
        if blow.signal is Signal.KILL:
            operator.kill()
        elif process := operator.process:
            process.pause()
            await asyncio.sleep(blow.seconds)
            process.go_on()

    async def _do(self, happening: Happening) -> None:
        life, index = self._life, happening.index
        match happening.deed:
            case Deed.LOSE_NODE:
                node = await life.lose_node(index)
                try:
                    await life.settled()
                finally:
                    await life.return_node(node)
            case Deed.SUSPEND:
                await life.suspend()
                if not life.over():
                    await life.resume()
            case Deed.MAKE_AGAIN:
                await life.delete()
                await life.create()
                life.ledger.slack = 5 * self._plan.falsifies
            case Deed.EXIT_FATAL:
                life.ledger.fails_by_rule = True
                await life.exit("3", charged=False, index=index)
            case deed:
                await _SIMPLE[deed](life, index)

    async def _until(self, at: float) -> None:
        await asyncio.sleep(max(0.0, at - self._now()))

    def _now(self) -> float:
        return elapsed(self._began)


_SIMPLE: Final[dict[Deed, Callable[[Life, int], Awaitable[None]]]] = {
    Deed.EXIT_ONE: lambda life, index: life.exit("1", charged=True, index=index),
    Deed.EXIT_ALL: lambda life, index: life.exit("1", charged=True, everyone=True),
    Deed.EXIT_FREE: lambda life, index: life.exit("42", charged=False, index=index),
    Deed.OUT_OF_MEMORY: lambda life, index: life.exit("137:OOMKilled", charged=True, index=index),
    Deed.DELETE_POD: lambda life, index: life.delete_pod(index),
    Deed.FORCE_DELETE_POD: lambda life, index: life.delete_pod(index, grace=0),
}
