"""Next-token prediction: the loader's labels are the targets."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from meshwright_trainer.batch import Batch
from meshwright_trainer.objectives.base import Loss
from meshwright_trainer.objectives.losses import CrossEntropy
from meshwright_trainer.random import Key


@dataclass(frozen=True)
class NextToken:
    """Cross-entropy of each position's label."""

    cross_entropy: CrossEntropy = field(default_factory=CrossEntropy)

    def prepare(self, batch: Batch, key: Key) -> Batch:
        """The micro-batch as it is."""
        return batch

    def weight(self, batch: Batch) -> Tensor:
        """Sum of the labels' weights, a float64 scalar."""
        return batch.weights.sum(dtype=torch.float64)

    def __call__(self, output: Tensor, batch: Batch) -> Loss:
        """The loss of logits (B, T, V)."""
        return self.cross_entropy(output, batch)
