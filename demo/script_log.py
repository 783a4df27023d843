"""What the training script or the trainer says on its standard output, and what it means for the demo."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

FIRST_CHECKPOINT_TO_LOSE_WORK_AFTER = 40
CLEAR_OF_CHECKPOINTS = range(5, 15)
"""Steps after a checkpoint at which the kill falls between two checkpoints (the script writes one every 20 steps)."""


@dataclass(frozen=True)
class Step:
    """A logged training step."""

    step: int
    steps: int
    loss: float
    tokens_per_second: float


@dataclass(frozen=True)
class Started:
    """A process has joined the others, and has loaded a checkpoint if `resumed_from_step` is not 0."""

    resumed_from_step: int


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint is on the disk."""

    step: int


Line = Step | Started | Checkpoint


def parse(text: str) -> list[Line]:
    """Reads whole lines; what is not one of ours (a traceback, a warning) is passed over."""
    return [line for raw in text.splitlines() if raw.startswith("{") and (line := _parse_line(raw))]


def _parse_line(raw: str) -> Line | None:
    try:
        said = json.loads(raw)
        if "loss" in said and said.get("event", "step") == "step":
            return Step(said["step"], said["steps"], said["loss"], said["tokens_per_second"])
        if said.get("event") == "started":
            return Started(said["resumed_from_step"])
        if said.get("event") == "checkpoint":
            return Checkpoint(said["step"])
    except (ValueError, KeyError):
        return None
    return None


def is_time_to_kill(lines: Sequence[Line]) -> bool:
    """Whether there is a checkpoint to go on from, work after it to lose, and no checkpoint being written."""
    checkpoint = max((line.step for line in lines if isinstance(line, Checkpoint)), default=0)
    step = max((line.step for line in lines if isinstance(line, Step)), default=0)
    return checkpoint >= FIRST_CHECKPOINT_TO_LOSE_WORK_AFTER and step - checkpoint in CLEAR_OF_CHECKPOINTS
