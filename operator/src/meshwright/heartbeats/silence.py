"""Whether a job's agents have fallen silent. Pure: who listens, since when and to what is passed in.

Silence is judged only where sound was possible: after a first heartbeat of the attempt (an image may be pulled for an
hour, and a job may have no agent), and once this leader has listened for a whole time-out itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class Verdict(StrEnum):
    """What is known of a job's agents."""

    NOT_JUDGED = "NotJudged"
    """Nobody has spoken yet, or this leader has not listened long enough."""
    HEARD = "Heard"
    SILENT = "Silent"


@dataclass(frozen=True, slots=True)
class Heard:
    """What this leader has heard of one job. Times are monotonic seconds."""

    attempt: int
    """The newest attempt that spoke."""
    first: float
    """When it spoke first."""
    last: float
    """When it spoke last."""

    def again(self, attempt: int, now: float) -> Heard:
        """After another report; words of an older attempt are no sign of life of the newest."""
        if attempt < self.attempt:
            return self
        return Heard(attempt, now, now) if attempt > self.attempt else replace(self, last=max(now, self.last))


def judge(
    heard: Heard | None,
    *,
    attempt: int,
    now: float,
    listening_since: float,
    timeout: float,
    spoke_before: bool = False,
) -> Verdict:
    """Judges the silence of a job.

    Args:
        heard: What this leader has heard; None if nothing.
        attempt: The attempt that should speak.
        now: The present.
        listening_since: When this leader began to listen.
        timeout: Seconds of silence that count.
        spoke_before: Whether the attempt is known to have spoken to an earlier leader.
    """
    spoke = heard is not None and heard.attempt >= attempt
    last = max(listening_since, heard.last) if heard is not None and spoke else listening_since
    if not spoke and not spoke_before:
        return Verdict.NOT_JUDGED
    if now - last > timeout:
        return Verdict.SILENT
    return Verdict.HEARD if spoke else Verdict.NOT_JUDGED
