"""`WorkQueue`: which jobs need a pass. One job is never worked on twice at once, different jobs are.

After each pass a job rests for as long as the pass asks: what happens to it meanwhile is seen by one pass, not by many.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class WorkQueue:
    """Keys to work on, each at most once at a time; a key that is added while it is worked on comes again."""

    def __init__(self) -> None:
        self._ready: asyncio.Queue[str] = asyncio.Queue()
        self._dirty: dict[str, float] = {}
        self._busy: set[str] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}

    def add(self, key: str) -> None:
        """Asks for a pass as soon as possible."""
        if key in self._dirty:
            return
        self._dirty[key] = time.monotonic()
        if key not in self._busy:
            self._ready.put_nowait(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Asks for a pass later; only the earliest such wish of a key is kept."""
        loop = asyncio.get_running_loop()
        wanted, timer = loop.time() + seconds, self._timers.get(key)
        if timer is not None:
            if timer.when() <= wanted:
                return
            timer.cancel()
        self._timers[key] = loop.call_at(wanted, self._fire, key)

    def forget(self, key: str) -> None:
        """Drops what was wished for later."""
        if timer := self._timers.pop(key, None):
            timer.cancel()

    def oldest_seconds(self) -> float:
        """For how long the longest waiting key has waited; 0 if none waits. May be asked from another thread."""
        now = time.monotonic()
        return max((now - since for since in tuple(self._dirty.values())), default=0.0)

    def __len__(self) -> int:
        return len(self._dirty)

    async def work(self, handle: Callable[[str], Awaitable[float]]) -> None:
        """Works for ever; `handle` must not raise, and returns the seconds for which its key rests."""
        loop = asyncio.get_running_loop()
        while True:
            key = await self._ready.get()
            self._dirty.pop(key, None)
            self.forget(key)
            self._busy.add(key)
            rest = 0.0
            try:
                rest = await handle(key)
            finally:
                if rest > 0:
                    loop.call_later(rest, self._rested, key)
                else:
                    self._rested(key)

    def close(self) -> None:
        """Cancels every timer."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _rested(self, key: str) -> None:
        self._busy.discard(key)
        if key in self._dirty:
            self._ready.put_nowait(key)

    def _fire(self, key: str) -> None:
        self._timers.pop(key, None)
        self.add(key)
