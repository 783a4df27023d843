"""What a model brings along, so that every way of running it can be applied from outside.

Patterns are `fnmatch` patterns over the names of `named_modules` and `named_parameters`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor

from meshwright_trainer.batch import Batch
from meshwright_trainer.random import Key


class ModelModule(Protocol):
    """The module's forward pass."""

    def __call__(self, batch: Batch, key: Key) -> Tensor:
        """Outputs for a micro-batch; everything random in it is drawn from the key."""
        ...


@dataclass(frozen=True)
class Init:
    """How a parameter begins: value = mean + std * normal(name, global index), or a constant when std is 0."""

    std: float = 0.0
    mean: float = 0.0


@dataclass(frozen=True)
class ModelPlan:
    """What parallelism, memory savers, optimizers and converters need to know of a model."""

    units: tuple[str, ...]
    """Modules, in the order of the forward pass, that are recomputed, sharded and tiered as one: `blocks.*`."""
    init: Mapping[str, Init]
    """By pattern, the first that matches; every parameter matches one."""
    no_decay: tuple[str, ...] = ()
    """Parameters without weight decay: norms and biases."""
    tied: tuple[tuple[str, ...], ...] = ()
    """Groups of names that are one parameter."""
    flops_per_token: Callable[[int], float] | None = None
    """Floating point operations of forward and backward for one token, from the sequence length."""
    reference_names: Mapping[str, str] = field(default_factory=dict)
    """By our name, the name in `transformers`."""


@dataclass(frozen=True)
class Model:
    """A model ready to be parallelised: its parameters may still be on the meta device."""

    module: Any
    """A torch module whose forward is `ModelModule`."""
    objective: str
    """Objective that it is trained with when the job names none."""
    plan: ModelPlan | None = None
    """None for a model of one's own without a plan: it still has data and shard axes, recompute and checkpoints."""
    identity: Mapping[str, Any] = field(default_factory=dict)
    """JSON values that say which model it is: family and sizes. Part of the checkpoint's fingerprint."""
