"""How fast something may happen over all jobs."""

from __future__ import annotations

import time
from collections.abc import Callable


class Pace:
    """Lets things happen a number of times each second on average, and half a second's worth at once."""

    def __init__(self, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._interval = 1 / per_second
        self._ahead = 0.5
        self._clock = clock
        self._next = clock()

    def wait(self) -> float:
        """Seconds to wait before it may happen; 0 if it may now, and then it counts as having happened."""
        now = self._clock()
        wait = self._next - self._ahead - now
        if wait > 0:
            return wait
        self._next = max(self._next, now) + self._interval
        return 0.0
