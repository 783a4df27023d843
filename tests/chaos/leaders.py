"""Two operators at once: the leader is stopped in front of one of its calls until the other leads, and then goes on.

Its call, decided under the old lease, reaches the API server late. It must change nothing that the new leader has done.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field

from tests.chaos.arena import QUICK_LEASE, Arena, Slot, Stage
from tests.chaos.calls import Call
from tests.chaos.proxy import FaultProxy, Moment
from tests.chaos.runs import Outcome, elapsed, see_through
from tests.chaos.scripts import SCRIPTS

OLD, NEW = "operator-old", "operator-new"
_TAKEOVER_SECONDS = 60.0
_REST_SECONDS = 1.5


@dataclass
class HoldAt:
    """The hook that pauses the old leader at its `count`-th call and holds the call until the new one has acted.

    Attributes:
        held: The call, once it was held.
        answered: Set once the API server has answered it.
        gone_on: Set once the old leader runs again.
        late_for: How many calls the new leader had made before this one was let go.
    """

    count: int
    on_held: Callable[[], None]
    old: Stage | None = None
    new: Stage | None = None
    held: Call | None = None
    late_for: int = -1
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    gone_on: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, count: int, call: Call, moment: Moment) -> bool:
        """Holds the call if this is the one."""
        if self.held and moment is Moment.AFTER and count == self.count and call.counted:
            self.answered.set()
        if self.held or not call.counted or (count, moment) != (self.count, Moment.BEFORE):
            return True
        assert self.old
        assert self.new
        assert self.old.operator.process
        self.held = call
        process = self.old.operator.process
        process.pause()
        self.on_held()
        await _until_it_rests(self.new.proxy)
        self.late_for = self.new.proxy.counted
        if count % 2:
            self._go_on()
        else:
            asyncio.get_running_loop().call_later(0.3, self._go_on)
        return True

    async def all_came(self) -> None:
        """Waits until the held call and those that were under way beside it have come.

        What comes after the job was deleted is another story: no precondition of a create can stop it, and the garbage
        collector takes what it made.
        """
        await self.answered.wait()
        await self.gone_on.wait()
        assert self.old
        await _until_quiet(self.old.proxy)

    def _go_on(self) -> None:
        assert self.old
        assert self.old.operator.process
        self.old.operator.process.go_on()
        self.gone_on.set()


async def run_pair(arena: Arena, script: str, count: int) -> Outcome:
    """One life under two operators."""
    async with arena.slot() as slot:
        began, hook = time.monotonic(), HoldAt(count, slot.scene.tell)
        label = f"pair-{script}-{count:03d}"
        life = slot.life()
        life.held = lambda: hook.held is not None
        async with slot.stage(label, hook=hook, identity=OLD, settings=QUICK_LEASE) as old:
            await _until_led_by(slot, OLD)
            async with slot.stage(f"{label}-new", identity=NEW, settings=QUICK_LEASE) as new:
                hook.old, hook.new = old, new

                async def act() -> None:
                    await SCRIPTS[script](life)
                    if hook.held:
                        await asyncio.wait_for(hook.all_came(), _TAKEOVER_SECONDS)
                        await (life.suspended() if script == "called-off" else life.settled())

                violations = await see_through(slot, life, (old, new), act)
        note = f"held {hook.held} until the other had made {hook.late_for} calls" if hook.held else ""
        counted = old.proxy.counted + new.proxy.counted
        return Outcome(label, violations, counted, 2, elapsed(began), note, arena.logs / f"{label}.log")


async def pairs(arena: Arena, script: str, counts: Iterable[int]) -> AsyncIterator[Outcome]:
    """As many at once as there are slots; in the order in which they end."""
    for done in asyncio.as_completed([asyncio.ensure_future(run_pair(arena, script, count)) for count in counts]):
        yield await done


async def _until_led_by(slot: Slot, identity: str) -> None:
    async with asyncio.timeout(_TAKEOVER_SECONDS):
        while await slot.lease_holder() != identity:
            await asyncio.sleep(0.1)


async def _until_it_rests(proxy: FaultProxy) -> None:
    """Waits until an operator has taken the Lease and made no call for a while, but not for ever."""
    deadline = time.monotonic() + _TAKEOVER_SECONDS
    count, since = -1, time.monotonic()
    while time.monotonic() < deadline:
        leads = any(passed.call.resource == "leases" and passed.status == 200 for passed in proxy.passed)
        if not leads or proxy.counted != count:
            count, since = proxy.counted, time.monotonic()
        elif time.monotonic() - since > _REST_SECONDS:
            return
        await asyncio.sleep(0.05)


async def _until_quiet(proxy: FaultProxy) -> None:
    """Waits until no counted call has passed for a while."""
    count, since = -1, time.monotonic()
    while time.monotonic() - since < _REST_SECONDS:
        if proxy.counted != count:
            count, since = proxy.counted, time.monotonic()
        await asyncio.sleep(0.05)
