"""What the loop knows of an engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from meshwright_trainer.batch import Batch, Window
from meshwright_trainer.checkpoint.pieces import Piece


@dataclass(frozen=True)
class StepResult:
    """What one step came to, over all ranks; the same on every rank."""

    loss: float
    """Sum over targets / weight."""
    weight: float
    """Weight of all targets: valid tokens."""
    norm: float
    """Norm of the whole gradient before clipping."""
    sums: Mapping[str, float] = field(default_factory=dict)
    """Named sums of the objective / weight."""
    skipped: bool = False
    """Whether all ranks agreed to leave the update out: the step counts, the learning rate does not move on."""


@dataclass(frozen=True)
class Evaluated:
    """What an evaluation came to, over all ranks."""

    loss: float
    weight: float
    sums: Mapping[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """Runs steps and owns weights and optimizer state."""

    def run(self, window: Window) -> StepResult:
        """One optimizer step."""
        ...

    def drain(self) -> None:
        """Returns when nothing is in flight, so that `pieces` is a consistent cut."""
        ...

    def pieces(self) -> Mapping[str, Piece]:
        """This rank's part of weights and optimizer state as live views: `model/NAME`, `optimizer/KIND/NAME`.

        Every tensor exists from the beginning, so that a reader can copy into the views.
        """
        ...

    def scalars(self) -> Mapping[str, float | int]:
        """The rest of the state: applied updates, loss scale. JSON values, the same on every rank."""
        ...

    def restore(self, scalars: Mapping[str, float | int]) -> None:
        """Called after all pieces were copied into."""
        ...

    def evaluate(self, batches: Iterable[Batch]) -> Evaluated:
        """Loss without update. Every rank gives the same number of batches."""
        ...
