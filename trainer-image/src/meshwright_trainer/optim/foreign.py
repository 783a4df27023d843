"""An optimizer of one's own: anything with the interface of `torch.optim.Optimizer`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from meshwright_api.trainer_config import OptimizerConfig
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.parallel.layout import Slice
from meshwright_trainer.parallel.units import matches
from meshwright_trainer.plugins import load_factory

FIELD = "spec.trainer.optimizer.factory"


class ForeignOptimizer:
    """Runs an optimizer on this rank's slices.

    Its state has to exist before the first step. A trial step without gradient creates it; what the trial created is
    set to 0 and what was there before gets its value back, so state that begins elsewhere than at 0 belongs in the
    optimizer's constructor.
    """

    def __init__(
        self, config: OptimizerConfig, slices: Sequence[Slice], no_decay: Sequence[str] = (), *, first: bool = True
    ) -> None:
        """Makes the optimizer and its state.

        Args:
            config: names the factory and its arguments.
            slices: what it updates.
            no_decay: patterns of parameters with a weight decay of 0.
            first: whether this rank writes what is not split, such as step counts.

        Raises:
            InvalidTrainer: there is no such factory.
            InvalidLaunch: it cannot be called so, or its state cannot be kept in checkpoints.
        """
        self._slices, self._first = slices, first
        self._parameters = [nn.Parameter(s.tensor) for s in slices]
        spared = [matches(s.name, no_decay) for s in slices]
        groups: list[dict[str, Any]] = [
            {"params": [p for p, s in zip(self._parameters, spared, strict=True) if not s]},
            {"params": [p for p, s in zip(self._parameters, spared, strict=True) if s], "weight_decay": 0.0},
        ]
        arguments = {"lr": config.learning_rate, **config.arguments}
        try:
            self._optimizer = load_factory(config.factory or "", FIELD)([g for g in groups if g["params"]], **arguments)
        except (TypeError, ValueError) as error:
            raise InvalidLaunch(f"{FIELD}: {config.factory} cannot be called with {arguments}: {error}") from error
        # Groups may have rates of their own; the schedule scales all of them.
        self._rates = [float(group["lr"]) / config.learning_rate for group in self._optimizer.param_groups]
        self._create_state()

    def update(self, gradients: Sequence[Tensor], *, rate: float, count: int) -> None:
        """One step of the optimizer."""
        for parameter, gradient in zip(self._parameters, gradients, strict=True):
            parameter.grad = gradient
        for group, share in zip(self._optimizer.param_groups, self._rates, strict=True):
            group["lr"] = rate * share
        self._optimizer.step()
        for parameter in self._parameters:
            parameter.grad = None

    def pieces(self) -> Mapping[str, Piece]:
        """State of a parameter's shape lies as the parameter does; single numbers are kept once."""
        found: dict[str, Piece] = {}
        for part, parameter in zip(self._slices, self._parameters, strict=True):
            for kind, value in self._optimizer.state[parameter].items():
                if value is None:
                    continue
                name = f"optimizer/{kind}/{part.name}"
                if value.dim() == 0 and parameter.dim() > 0:
                    found[name] = Piece((), (), value, part.owner and self._first)
                elif value.shape == parameter.shape:
                    found[name] = Piece(part.box.shape, part.box.offsets, value, part.owner)
                else:
                    shape = tuple(value.shape)
                    found[name] = Piece(shape, tuple(0 for _ in shape), value, part.owner)
        return found

    def _create_state(self) -> None:
        before = {p: dict(self._optimizer.state.get(p, {})) for p in self._parameters}
        values = {t: t.clone() for state in before.values() for t in state.values() if isinstance(t, Tensor)}
        weights = [p.detach().clone() for p in self._parameters]
        self.update([torch.zeros_like(p) for p in self._parameters], rate=0.0, count=1)
        with torch.no_grad():
            for parameter, weight in zip(self._parameters, weights, strict=True):
                parameter.copy_(weight)
                for kind, value in self._optimizer.state[parameter].items():
                    self._reset(kind, value, values)

    def _reset(self, kind: str, value: Any, before: Mapping[Tensor, Tensor]) -> None:
        if value is None:
            return
        if not isinstance(value, Tensor):
            raise InvalidLaunch(
                f"{FIELD}: the state {kind!r} is a {type(value).__name__}, which a checkpoint cannot read back in "
                "place; make it a tensor, or set the argument that leaves it out"
            )
        value.copy_(before[value]) if value in before else value.zero_()
