"""What agents say of how far their jobs are. Kept in memory only: whoever leads next hears it again within seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Progress:
    """How far the processes of one attempt are."""

    attempt: int
    """The process generation that speaks."""
    incarnation: int
    """The set of pods that speaks."""
    step: int | None = None
    """Optimizer steps done since the beginning of the training, not of the attempt."""
    steps: int | None = None
    """Optimizer steps in all."""
    loss: float | None = None
    """Training loss of the last logged step; infinite or not a number where training has diverged."""
    tokens_per_second: float | None = None
    """Tokens (samples, where there are no tokens) per second over all ranks."""
    mfu: float | None = None
    """Model FLOPs utilisation, as a fraction of the devices' peak."""
    eta_seconds: float | None = None
    """Estimated seconds until the last step."""
    checkpoint_step: int | None = None
    """Step of the last durable checkpoint."""
    checkpoint_time: datetime | None = None
    """When that checkpoint was committed."""
    phase: str = ""
    """The trainer's own word for what it does."""


class ProgressBoard:
    """The newest word of every job, by its UID.

    Attributes:
        on_report: Called with the job's UID when there is news of it.
    """

    def __init__(self) -> None:
        self.on_report: Callable[[str], None] = lambda uid: None
        self._latest: dict[str, Progress] = {}

    def report(self, uid: str, progress: Progress) -> bool:
        """Notes what a job's agent said; returns whether it was news.

        Words of an older attempt, and words of this attempt that were overtaken on their way, change nothing. The last
        durable checkpoint stays known when a report does not name it.
        """
        known = self._latest.get(uid)
        if known is not None:
            if _order(progress) < _order(known):
                return False
            progress = _with_checkpoint(progress, known)
            if progress == known:
                return False
        self._latest[uid] = progress
        self.on_report(uid)
        return True

    def latest(self, uid: str) -> Progress | None:
        """The newest word of the job; None if it has not spoken to this process."""
        return self._latest.get(uid)

    def forget(self, uid: str) -> None:
        """The job is gone."""
        self._latest.pop(uid, None)

    def clear(self) -> None:
        """Forgets every job: others lead now, and are told."""
        self._latest.clear()


def _order(progress: Progress) -> tuple[int, int, int]:
    return progress.attempt, progress.incarnation, -1 if progress.step is None else progress.step


def _with_checkpoint(progress: Progress, known: Progress) -> Progress:
    """The report with the newest checkpoint of its own attempt that is known."""
    same = (progress.attempt, progress.incarnation) == (known.attempt, known.incarnation)
    if not same or known.checkpoint_step is None or known.checkpoint_step <= (progress.checkpoint_step or 0):
        return progress
    return replace(progress, checkpoint_step=known.checkpoint_step, checkpoint_time=known.checkpoint_time)
