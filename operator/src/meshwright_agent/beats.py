"""When an agent reports, and to whom.

Rank 0's agent reports to the operator for all; the others report to it. Whoever has no key yet, or has not been
answered by rank 0's agent for three intervals, reports to the operator itself, spread over time so that a large job
cannot flood it. Nothing here ever ends or delays the training but one thing: the word that the attempt is overtaken.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable

from meshwright_agent.errors import Unanswered
from meshwright_agent.plan import Heartbeat, Place, Plan
from meshwright_agent.relay import MISSED_BEATS, Caller, Gathering, Listener
from meshwright_agent.uplink import Uplink
from meshwright_agent.wire import Answer, Progress, Report

LONGEST_DELAY_SECONDS = 60.0
DIRECT_PER_SECOND = 100.0
"""Reports that all agents of a job together send to the operator, when each sends its own."""
LAST_WORD_SECONDS = 2.0


class Beats:
    """The agent's heart: a thread that reports at every interval.

    Args:
        plan: The attempt.
        heartbeat: Where and how often.
        place: The pod's place.
        uplink: The way to the operator.
        progress: Says how far the pod's processes are.
        overtaken: Called once, when the operator says that a newer attempt exists.
        say: Called with a line for the log: the first of several failures, and the first success after them.
    """

    def __init__(
        self,
        plan: Plan,
        heartbeat: Heartbeat,
        place: Place,
        uplink: Uplink,
        progress: Callable[[], Progress],
        overtaken: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._plan, self._place = plan, place
        self._port = heartbeat.aggregate_port
        self._interval = self._planned_interval = heartbeat.interval_seconds
        self._uplink, self._progress = uplink, progress
        self._overtaken, self._say = overtaken, say
        self._gathering = Gathering(plan, self._interval)
        self._caller = Caller(self._port, min(2.0, self._interval))
        self._listener: Listener | None = None
        self._answer = Answer(plan.attempt)
        self._key = ""
        self._direct_at = 0.0
        self._failures = 0
        self._fenced = False
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeats", daemon=True)

    def start(self) -> None:
        """Begins to report."""
        if self._place.leads and self._plan.pods > 1:
            try:
                self._listener = Listener(
                    self._port, self._gathering, lambda: self._key, lambda: self._answer, time.monotonic
                )
                self._listener.start()
            except OSError as error:
                self._say(f"port {self._port} cannot be used, so each pod reports by itself: {error}")
        self._thread.start()

    def stop(self) -> None:
        """Ends reporting; rank 0's agent tells the end of the training, if the operator listens."""
        self._ending.set()
        self._thread.join(LAST_WORD_SECONDS)  # No longer: a name server that does not answer knows no time-out.
        if self._listener is not None:
            self._listener.close()

    def _run(self) -> None:
        # All pods of a job start at once, and each needs its key from the operator.
        if self._ending.wait(0.0 if self._place.leads else self._spread()):
            return
        while not self._ending.wait(self._beat()):
            pass
        if self._place.leads and not self._failures and not self._fenced:
            # Without it the last steps before the end would never be known.
            with contextlib.suppress(Unanswered):
                self._uplink.send(self._report(), LAST_WORD_SECONDS)

    def _beat(self) -> float:
        """One report, if one is due; returns seconds until the next."""
        now = time.monotonic()
        if self._place.leads:
            self._direct_at = self._report_directly(now, self._interval)
            return self._direct_at - now
        answer = None
        if self._key:
            host = self._answer.rank0_ip or self._plan.rendezvous_host
            answer = self._caller.call(self._report(), self._key, host)
        if answer is not None:
            self._direct_at = now + MISSED_BEATS * self._interval + self._spread()
            self._heed(answer)
        elif now >= self._direct_at:
            self._direct_at = self._report_directly(now, self._spread(at_least=self._interval))
        due = self._interval if self._key else self._direct_at - now
        return max(0.0, now + due - time.monotonic())

    def _report_directly(self, now: float, pause: float) -> float:
        """Reports to the operator; returns when to do so again, after growing delays if it does not answer."""
        try:
            answer = self._uplink.send(self._report())
        except Unanswered as error:
            if not self._failures:
                self._say(f"{error}; training goes on, and reporting is tried again")
            self._failures += 1
            delay = min(LONGEST_DELAY_SECONDS, self._interval * 2.0 ** min(self._failures, 10))
            return now + max(delay * random.uniform(0.5, 1.0), pause)
        if self._failures:
            self._say("the operator answers again")
        self._failures = 0
        self._key = answer.key or self._key
        self._heed(answer)
        return now + pause

    def _heed(self, answer: Answer) -> None:
        self._answer = answer
        self._interval = max(self._planned_interval, answer.interval_seconds or 0.0)
        if answer.attempt > self._plan.attempt and not self._fenced:
            self._fenced = True
            self._overtaken()

    def _report(self) -> Report:
        place, progress = self._place, self._progress()
        own = Report(
            attempt=self._plan.attempt,
            incarnation=place.incarnation,
            role=place.role.name,
            index=place.index,
            pod=place.pod,
            min_step=progress.step,
            max_step=progress.step,
            progress=progress,
        )
        return self._gathering.combined(own, time.monotonic()) if place.leads else own

    def _spread(self, at_least: float = 0.0) -> float:
        """A random pause, long enough on average that all agents together stay below their rate."""
        return max(at_least, random.uniform(0.0, 2.0 * self._plan.pods / DIRECT_PER_SECOND))
