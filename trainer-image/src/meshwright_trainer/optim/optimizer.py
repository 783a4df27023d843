"""The optimizer of a rank: a rule, its state, and which parameters decay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import torch
from torch import Tensor

from meshwright_api.trainer_config import OptimizerConfig
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.optim.updates import Moment, Rule
from meshwright_trainer.parallel.layout import Slice
from meshwright_trainer.parallel.units import matches


class Optimizer(Protocol):
    """What changes the slices of a rank."""

    def update(self, gradients: Sequence[Tensor], *, rate: float, count: int) -> None:
        """Update number `count`, from 1, with a learning rate; gradients in the order of the slices."""
        ...

    def pieces(self) -> Mapping[str, Piece]:
        """Its state as live views: `optimizer/KIND/NAME`."""
        ...


class RuleOptimizer:
    """A built-in rule over the trainable slices."""

    def __init__(
        self, config: OptimizerConfig, rule: Rule, slices: Sequence[Slice], no_decay: Sequence[str] = ()
    ) -> None:
        """Makes the whole state at once, so that a checkpoint's reader finds all of it."""
        self._rule, self._slices = rule, slices
        self._state = {kind: [torch.zeros_like(s.tensor) for s in slices] for kind in rule.kinds}
        plain = [matches(s.name, no_decay) for s in slices]
        self._groups = [
            (config.weight_decay, [i for i, spared in enumerate(plain) if not spared]),
            (0.0, [i for i, spared in enumerate(plain) if spared]),
        ]

    def update(self, gradients: Sequence[Tensor], *, rate: float, count: int) -> None:
        """Runs the rule on those that decay, then on those that do not."""
        for decay, indices in self._groups:
            moment = Moment(
                [self._slices[i].tensor for i in indices],
                [gradients[i] for i in indices],
                {kind: [tensors[i] for i in indices] for kind, tensors in self._state.items()},
            )
            self._rule(moment, rate=rate, weight_decay=decay, count=count)

    def pieces(self) -> Mapping[str, Piece]:
        """State tensors lie as their parameters do."""
        return {
            f"optimizer/{kind}/{part.name}": Piece(part.box.shape, part.box.offsets, tensor, part.owner)
            for kind, tensors in self._state.items()
            for part, tensor in zip(self._slices, tensors, strict=True)
        }
