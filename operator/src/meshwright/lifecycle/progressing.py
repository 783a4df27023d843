"""What a job's status says of its progress, from what its agent last said.

The figures ride in the draft of every decision, so any write carries them; on their own they are written now and then.
"""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import datetime

from meshwright.lifecycle.model import Decision, Observation
from meshwright.progress import Progress as Report
from meshwright_api.status import CheckpointStatus, Incident, Progress, TrainingJobStatus


def noted(o: Observation) -> Observation:
    """The observation with the agent's word in the draft of its status.

    Only the processes of the committed plan are believed: those of an older attempt may still speak.
    """
    said, status = o.progress, o.status
    if said is None or (said.attempt, said.incarnation) != (status.planned, status.incarnation):
        return o
    update = {
        "progress": _figures(said, status.progress, o.now),
        "checkpoint": _checkpoint(said, status.checkpoint),
        "incidents": _resumed(said, status),
    }
    return replace(o, status=status.model_copy(update=update))


def tell(before: TrainingJobStatus, drafted: Observation) -> Decision | None:
    """Writes the figures for their own sake, if there are new ones and it is time."""
    after = drafted.status
    if not news(before, after) or not drafted.progress_due:
        return None
    progress = after.progress
    return Decision(status=after, why=f"step {progress.step if progress else None}")


def news(before: TrainingJobStatus, after: TrainingJobStatus) -> bool:
    """Whether a draft says something new of progress."""
    return (before.progress, before.checkpoint, before.incidents) != (after.progress, after.checkpoint, after.incidents)


def only_progress(before: TrainingJobStatus, after: TrainingJobStatus) -> bool:
    """Whether a write would change nothing but figures of progress."""
    return news(before, after) and after == before.model_copy(
        update={"progress": after.progress, "checkpoint": after.checkpoint, "incidents": after.incidents}
    )


def step_reached(status: TrainingJobStatus, attempt: int) -> int | None:
    """Steps that an attempt had done; None if it did not say."""
    progress = status.progress
    return progress.step if progress is not None and progress.attempt == attempt else None


def _figures(said: Report, known: Progress | None, now: datetime) -> Progress | None:
    """The figures to show; those that are known already keep the time at which they were first seen."""
    if said.step is None:
        return known
    if known is not None and known.attempt == said.attempt and (known.step or 0) > said.step:
        return known  # a leader before this one heard of more
    fresh = Progress(
        attempt=said.attempt,
        step=said.step,
        total_steps=said.steps,
        loss="" if said.loss is None else f"{said.loss:.6g}",
        tokens_per_second=_whole(said.tokens_per_second),
        mfu_percent=_whole(None if said.mfu is None else 100 * said.mfu),
        eta_seconds=_whole(said.eta_seconds),
    )
    if known is not None and fresh == known.model_copy(update={"observed_at": None}):
        return known
    return fresh.model_copy(update={"observed_at": now})


def _checkpoint(said: Report, known: CheckpointStatus | None) -> CheckpointStatus | None:
    """The newest checkpoint. A training that begins anew has lower steps, so the time decides where it is known."""
    if said.checkpoint_step is None:
        return known
    fresh = CheckpointStatus(step=said.checkpoint_step, committed_at=said.checkpoint_time)
    if known is None or known.step is None:
        return fresh
    if fresh.committed_at is not None and known.committed_at is not None and fresh.committed_at != known.committed_at:
        return fresh if fresh.committed_at > known.committed_at else known
    return fresh if said.checkpoint_step > known.step else known


def _resumed(said: Report, status: TrainingJobStatus) -> tuple[Incident, ...]:
    """The incidents, the last of them with the step from which the attempt after it went on.

    That is the checkpoint which was the last one before this attempt spoke of any step.
    """
    incidents = status.incidents
    if not incidents or said.step is None or incidents[-1].step_resumed is not None:
        return incidents
    first_word = status.progress is None or status.progress.attempt != said.attempt
    base = status.checkpoint.step if status.checkpoint else None
    if not first_word or incidents[-1].attempt >= said.attempt or base is None or base > said.step:
        return incidents
    return (*incidents[:-1], incidents[-1].model_copy(update={"step_resumed": base}))


def _whole(value: float | None) -> int | None:
    return round(value) if value is not None and math.isfinite(value) else None
