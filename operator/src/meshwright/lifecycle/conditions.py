"""Conditions are built here and nowhere else."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from meshwright_api.status import Condition, TrainingJobStatus

Truth = Literal["True", "False", "Unknown"]


def truth(value: bool) -> Truth:
    """The API's spelling of a truth value."""
    return "True" if value else "False"


def find(status: TrainingJobStatus, kind: str) -> Condition | None:
    """The condition of that type, if the status has one."""
    return next((c for c in status.conditions if c.type == kind), None)


def holds(status: TrainingJobStatus, kind: str) -> bool:
    """Whether the condition of that type is there and True."""
    condition = find(status, kind)
    return condition is not None and condition.status == "True"


def put(
    status: TrainingJobStatus, kind: str, value: bool, reason: str, message: str, *, now: datetime, generation: int
) -> TrainingJobStatus:
    """The status with this condition set; its transition time moves only when the truth value does."""
    old = find(status, kind)
    new = Condition(
        type=kind,
        status=truth(value),
        reason=reason,
        message=message,
        observed_generation=generation,
        last_transition_time=old.last_transition_time if old and old.status == truth(value) else now,
    )
    if old == new:
        return status
    kept = tuple(new if c.type == kind else c for c in status.conditions)
    return status.model_copy(update={"conditions": kept if old else (*kept, new)})
