"""Update rules as functions over lists of local tensors, in place.

They know nothing of meshes: every element is updated by itself, so a rule serves whole tensors and parts alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from meshwright_api.trainer_config import OptimizerConfig


@dataclass(frozen=True)
class Moment:
    """What one update works on, tensor by tensor."""

    parameters: Sequence[Tensor]
    gradients: Sequence[Tensor]
    state: dict[str, list[Tensor]]
    """By kind, a tensor for each parameter; `AdamW.kinds` and `SGD.kinds`."""


class Rule(Protocol):
    """An update rule."""

    @property
    def kinds(self) -> tuple[str, ...]:
        """Names of its state tensors, which begin as zeros of the parameter's shape and format."""
        ...

    def __call__(self, moment: Moment, *, rate: float, weight_decay: float, count: int) -> None:
        """Updates parameters and state.

        Args:
            moment: the tensors.
            rate: learning rate of this update.
            weight_decay: decoupled: the parameter shrinks by rate x weight_decay of itself.
            count: number of this update, from 1.
        """
        ...


@dataclass(frozen=True)
class AdamW:
    """Loshchilov and Hutter 2019, algorithm 2, in torch's form."""

    betas: tuple[float, float]
    epsilon: float
    fused: bool = True
    """One kernel for all; else operations that round once each, so that bits depend neither on where a tensor was cut
    nor on which part of it a vector unit handled."""

    kinds = ("exp_avg", "exp_avg_sq")

    def __call__(self, moment: Moment, *, rate: float, weight_decay: float, count: int) -> None:
        """One update; see `Rule`."""
        if self.fused:
            self._fused(moment, rate, weight_decay, count)
            return
        (beta1, beta2), state = self.betas, moment.state
        correction1, correction2 = 1.0 - beta1**count, 1.0 - beta2**count
        for p, g, m, v in zip(moment.parameters, moment.gradients, state["exp_avg"], state["exp_avg_sq"], strict=True):
            p.mul_(1.0 - rate * weight_decay)
            m.mul_(beta1).add_(g.mul(1.0 - beta1))
            v.mul_(beta2).add_(g.mul(g).mul_(1.0 - beta2))
            scale = v.sqrt().div_(math.sqrt(correction2)).add_(self.epsilon)
            p.sub_(m.div(scale).mul_(rate / correction1))

    def _fused(self, moment: Moment, rate: float, weight_decay: float, count: int) -> None:
        first, second = moment.state["exp_avg"], moment.state["exp_avg_sq"]
        present = [i for i, p in enumerate(moment.parameters) if p.numel()]
        if not present:
            return
        step = torch.full((), float(count), dtype=torch.float32, device=moment.parameters[0].device)
        torch._fused_adamw_(
            [moment.parameters[i] for i in present],
            [moment.gradients[i] for i in present],
            [first[i] for i in present],
            [second[i] for i in present],
            [],
            [step] * len(present),
            amsgrad=False,
            lr=rate,
            beta1=self.betas[0],
            beta2=self.betas[1],
            weight_decay=weight_decay,
            eps=self.epsilon,
            maximize=False,
        )


@dataclass(frozen=True)
class SGD:
    """Stochastic gradient descent with heavy-ball momentum in torch's form; weight decay is decoupled."""

    momentum: float = 0.0

    @property
    def kinds(self) -> tuple[str, ...]:
        """Nothing is kept without momentum."""
        return ("momentum_buffer",) if self.momentum else ()

    def __call__(self, moment: Moment, *, rate: float, weight_decay: float, count: int) -> None:
        """One update; see `Rule`."""
        buffers = moment.state["momentum_buffer"] if self.momentum else moment.gradients
        for p, g, buffer in zip(moment.parameters, moment.gradients, buffers, strict=True):
            if self.momentum:
                buffer.mul_(self.momentum).add_(g)
            p.mul_(1.0 - rate * weight_decay)
            # Two roundings instead of one fused operation: see AdamW.fused.
            p.sub_(buffer.mul(rate))


def rule_of(config: OptimizerConfig, *, in_order: bool) -> Rule:
    """The rule of a built-in optimizer.

    Args:
        config: names AdamW or SGD.
        in_order: whether bits must not depend on how tensors are spread.
    """
    if config.name == "SGD":
        return SGD(config.momentum)
    return AdamW(config.betas, config.epsilon, fused=not in_order)
