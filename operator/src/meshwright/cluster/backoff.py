"""Waiting longer after each failure, up to a cap, with jitter, for ever: no outage ends this process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Delays:
    """An endless sequence of delays, begun anew by each iteration.

    Without a length on purpose: Kopf gives up when a sequence ends, and counts one that has a length.
    """

    first: float = 0.1
    cap: float = 30.0
    rng: random.Random = field(default_factory=random.Random, compare=False)

    def __iter__(self) -> Iterator[float]:
        delay = self.first
        while True:
            yield delay * self.rng.uniform(0.5, 1.0)
            delay = min(delay * 2, self.cap)


class Backoff:
    """The delay that is due now; `reset` after a success."""

    def __init__(self, delays: Delays) -> None:
        self._delays = delays
        self._next = iter(delays)

    def delay(self, at_least: float | None = None) -> float:
        """Seconds to wait after one more failure; the server's own wish counts when it is longer."""
        return max(next(self._next), at_least or 0.0)

    def reset(self) -> None:
        """Something worked: the next failure begins from the shortest delay."""
        self._next = iter(self._delays)
