"""An optimizer of one's own: anything with the interface of `torch.optim.Optimizer`."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from meshwright_api.trainer_config import OptimizerConfig
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.optim.beside import kept_beside, lost
from meshwright_trainer.parallel.layout import Slice
from meshwright_trainer.parallel.units import matches
from meshwright_trainer.plugins import load_factory

FIELD = "spec.trainer.optimizer.factory"


class ForeignOptimizer:
    """Runs an optimizer on this rank's slices.

    A checkpoint is read into tensors that are there, and most optimizers make theirs in the first step. So a trial step
    without gradient makes them here. Where they begin only the optimizer knows (the step sizes of Rprop at the learning
    rate, a product of NAdam at 1), so if the first update is the run's first, the trial is forgotten before it.
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
            InvalidLaunch: it cannot be called so, its step needs a closure, or its state cannot be kept in checkpoints.
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
        self._check_step()
        self._begun: list[dict[str, Any] | None] | None = None
        self._try()

    def update(self, gradients: Sequence[Tensor], *, rate: float, count: int) -> None:
        """One step of the optimizer."""
        if self._begun is not None and count == 1:
            self._forget_trial(self._begun)
        self._begun = None
        self._step(gradients, rate)

    def _step(self, gradients: Sequence[Tensor], rate: float) -> None:
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
            for kind, value in self._optimizer.state.get(parameter, {}).items():
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

    def _try(self) -> None:
        """Makes the state that a checkpoint is read into. Weights, and what state there was, keep their values."""
        state = self._optimizer.state
        self._begun = [dict(state[p]) if p in state else None for p in self._parameters]
        held = [t for begun in self._begun for t in (begun or {}).values() if isinstance(t, Tensor)]
        values = [(t, t.clone()) for t in (*held, *(p.detach() for p in self._parameters))]
        beside = kept_beside(self._optimizer)
        self._step([torch.zeros_like(p) for p in self._parameters], rate=0.0)
        for parameter in self._parameters:
            for kind, value in state.get(parameter, {}).items():
                _check_readable(kind, value)
        with torch.no_grad():
            for tensor, value in values:
                tensor.copy_(value)
        for name in lost(self._optimizer, self._parameters, beside):
            raise InvalidLaunch(
                f"{FIELD}: the optimizer keeps {name} beside the state of its parameters, where no checkpoint sees it; "
                "make it a tensor in the state of a parameter, or set the argument that leaves it out"
            )

    def _forget_trial(self, begun: Sequence[dict[str, Any] | None]) -> None:
        for parameter, before in zip(self._parameters, begun, strict=True):
            if before is None:
                self._optimizer.state.pop(parameter, None)
            else:
                self._optimizer.state[parameter].clear()
                self._optimizer.state[parameter].update(before)

    def _check_step(self) -> None:
        try:
            inspect.signature(self._optimizer.step).bind()
        except ValueError:  # built in, without a signature to check against
            return
        except TypeError as error:
            raise InvalidLaunch(
                f"{FIELD}: the step of a {type(self._optimizer).__name__} cannot be called without arguments: {error}; "
                "an optimizer that asks for the loss again by a closure cannot be used, for the gradient is summed "
                "over all ranks before it"
            ) from error


def _check_readable(kind: str, value: Any) -> None:
    if value is not None and not isinstance(value, Tensor):
        raise InvalidLaunch(
            f"{FIELD}: the state {kind!r} is a {type(value).__name__}, which a checkpoint cannot read back in place; "
            "make it a tensor, or set the argument that leaves it out"
        )
