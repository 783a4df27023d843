"""Where training stands: everything that a resume needs beside weights and optimizer state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from meshwright_trainer.engines.base import StepResult


@dataclass(frozen=True)
class TrainState:
    """The state after a step. Data order, learning rate and every random draw are functions of it."""

    step: int = 0
    """Steps done."""
    samples: int = 0
    """Samples consumed, in the global order."""
    tokens: float = 0.0
    """Weight of all targets so far."""
    skipped_in_a_row: int = 0
    """Last steps whose update was left out."""
    scalars: Mapping[str, float | int] = field(default_factory=dict)
    """The engine's own: applied updates, loss scale."""

    def after(self, result: StepResult, samples: int) -> TrainState:
        """The state one step later.

        Args:
            result: what the step came to.
            samples: samples of the step over all ranks.
        """
        return replace(
            self,
            step=self.step + 1,
            samples=self.samples + samples,
            tokens=self.tokens + result.weight,
            skipped_in_a_row=self.skipped_in_a_row + 1 if result.skipped else 0,
        )
