"""Whether this process is alive: not whether all is well, but whether a restart would help.

An API server that is down is no reason to restart: every loop notes its failed attempts, and counts as alive. What a
probe looks for is a loop that neither hears nor tries anything, a blocked event loop, and jobs that nobody gets to
although the server answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


class Unhealthy(Exception):
    """This process does not do its work, and a restart would help; the message says what stands still."""


class Watch(Protocol):
    """A loop that keeps a collection current."""

    @property
    def name(self) -> str:
        """What it watches."""

    def age(self) -> float:
        """Seconds since the server's last word."""

    def stuck(self) -> float:
        """Seconds since anything at all happened in its loop."""


@dataclass(frozen=True)
class Limits:
    """Seconds that things may stand still."""

    watch: float = 180.0
    """More than two silences of a watch (75 s), each of which ends in a new attempt."""
    lease: float = 60.0
    lag: float = 10.0
    job: float = 600.0


class LagMeter:
    """Measures how late the event loop wakes."""

    def __init__(self, interval: float = 0.5) -> None:
        self.lag = 0.0
        self._interval = interval

    async def run(self) -> None:
        """Measures until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + self._interval
            await asyncio.sleep(self._interval)
            self.lag = max(0.0, loop.time() - due)


class Health:
    """The probes; each returns what it measured, or raises `Unhealthy`."""

    def __init__(
        self,
        *,
        watches: Iterable[Watch],
        lease_stuck: Callable[[], float],
        oldest_job: Callable[[], float],
        lag: Callable[[], float],
        limits: Limits | None = None,
    ) -> None:
        self._watches = tuple(watches)
        self._lease_stuck = lease_stuck
        self._oldest_job = oldest_job
        self._lag = lag
        self._limits = limits or Limits()

    def watches(self) -> dict[str, float]:
        """Age of the last word of every watch."""
        for watch in self._watches:
            self._within(f"the watch of {watch.name} heard and tried nothing", watch.stuck(), self._limits.watch)
        return {watch.name: round(watch.age(), 1) for watch in self._watches}

    def lease(self) -> float:
        """Seconds since the lease was last tried for or renewed."""
        return self._within("the lease was not tried for", self._lease_stuck(), self._limits.lease)

    def jobs(self) -> float:
        """Seconds that the longest waiting job has waited for a pass, while the server could be heard."""
        oldest = self._oldest_job()
        if any(watch.age() > self._limits.watch for watch in self._watches):
            return round(oldest, 1)  # Nobody could have done better without the API server.
        return self._within("a job waited for its pass", oldest, self._limits.job)

    def loop(self) -> float:
        """Seconds that the event loop woke late."""
        return self._within("the event loop was blocked", self._lag(), self._limits.lag)

    @staticmethod
    def _within(what: str, seconds: float, limit: float) -> float:
        if seconds > limit:
            raise Unhealthy(f"{what} for {seconds:.0f} s (limit {limit:.0f} s)")
        return round(seconds, 1)
