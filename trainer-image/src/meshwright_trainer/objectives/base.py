"""The contract between models, losses and engines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from meshwright_trainer.batch import Batch
from meshwright_trainer.random import Key


@dataclass(frozen=True)
class Loss:
    """What one micro-batch adds to the step."""

    sum: Tensor
    """Sum over the targets, weighted; scalar, with gradient."""
    sums: Mapping[str, Tensor] = field(default_factory=dict)
    """Named sums for the record, without gradient: `correct`. Each is divided by the weight when it is shown."""


class Objective(Protocol):
    """What is minimised: sum over all targets of a step / weight of all targets of the step."""

    def prepare(self, batch: Batch, key: Key) -> Batch:
        """The micro-batch as the model sees it; masked-token models hide tokens here. Must not change its shapes."""
        ...

    def weight(self, batch: Batch) -> Tensor:
        """Weight of the prepared micro-batch's targets, a float64 scalar. Known before the forward pass."""
        ...

    def __call__(self, output: Tensor, batch: Batch) -> Loss:
        """The loss of the model's output for a prepared micro-batch."""
        ...
