"""When to keep a checkpoint and when to evaluate."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from meshwright_api.trainer_config import CheckpointConfig, EvaluationConfig


@dataclass
class Cadence:
    """By steps, which all ranks count alike, or by this rank's clock, which only makes it vote."""

    checkpoint: CheckpointConfig
    evaluation: EvaluationConfig
    clock: Callable[[], float] = time.monotonic
    _saved: float = field(init=False)

    def __post_init__(self) -> None:
        self._saved = self.clock()

    def saves(self, step: int) -> bool:
        """Whether a checkpoint is due after this step, by count."""
        every = self.checkpoint.every_steps
        return every is not None and step % every == 0

    def clock_says(self) -> bool:
        """Whether a checkpoint is due by the clock; asks for one only once until it is due again."""
        every = self.checkpoint.every_seconds
        if every is None or self.clock() - self._saved < every:
            return False
        self._saved = self.clock()
        return True

    def evaluates(self, step: int) -> bool:
        """Whether an evaluation is due after this step."""
        every = self.evaluation.every_steps
        return every is not None and step % every == 0
