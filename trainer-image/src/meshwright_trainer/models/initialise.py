"""First values of parameters: drawn box by box, so that no rank ever holds more than its part.

A value depends on (seed, logical name, place in the logical tensor) and nothing else: any sharding begins alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn

from meshwright_trainer.models.base import Init, Model, ModelPlan
from meshwright_trainer.models.errors import PlanMismatch
from meshwright_trainer.random import normal_box


def init_of(plan: ModelPlan, name: str) -> Init:
    """How a parameter begins.

    Raises:
        PlanMismatch: no pattern of the plan fits its name.
    """
    for pattern, init in plan.init.items():
        if fnmatchcase(name, pattern):
            return init
    raise PlanMismatch(f"no pattern of the model plan's init fits the parameter {name!r}; add one")


@torch.no_grad()
def fill_box(
    plan: ModelPlan, name: str, shape: Sequence[int], offsets: Sequence[int], tensor: Tensor, seed: int
) -> None:
    """Writes first values into a box of a parameter, in place.

    Values are drawn in float32 and then converted, so that all precisions begin with the same numbers, rounded.

    Args:
        plan: the model's plan.
        name: the parameter's logical name.
        shape: shape of the whole parameter.
        offsets: where the box begins in each dim.
        tensor: the box.
        seed: the run's seed.
    """
    init = init_of(plan, name)
    if init.std == 0:
        tensor.fill_(init.mean)
        return
    drawn = normal_box(seed, name, shape, offsets, tuple(tensor.shape), tensor.device)
    tensor.copy_(drawn.mul_(init.std).add_(init.mean))


def initialised(
    model: Model, seed: int, *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> nn.Module:
    """The model's module on one device, whole, with first values: for one process, and to compare others with.

    Raises:
        PlanMismatch: the model has no plan, or the plan leaves a parameter out.
    """
    if model.plan is None:
        raise PlanMismatch("a model without a plan says itself how its parameters begin")
    module: nn.Module = model.module.to(dtype).to_empty(device=device)
    for name, parameter in module.named_parameters():
        fill_box(model.plan, name, tuple(parameter.shape), (0,) * parameter.dim(), parameter, seed)
    return module
