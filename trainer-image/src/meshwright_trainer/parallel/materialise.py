"""Where weights begin: drawn box by box from the seed, or the same real ones on every rank."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.models.base import ModelPlan
from meshwright_trainer.models.initialise import fill_box
from meshwright_trainer.parallel.layout import Slice


def is_drawn(module: nn.Module, plan: ModelPlan | None) -> bool:
    """Whether the weights are drawn by the plan, which never needs a whole tensor: the model has no values yet.

    Raises:
        InvalidLaunch: only some values are missing, or buffers' values, which no plan can give.
    """
    missing = [name for name, p in module.named_parameters() if p.is_meta]
    if plan is None or not missing:
        return False
    buffers = [name for name, b in module.named_buffers() if b.is_meta]
    if buffers or len(missing) < len(list(module.parameters())):
        raise InvalidLaunch(
            "spec.trainer.model: a model with a plan is built on the meta device as a whole and without buffers; "
            f"look at {', '.join(buffers or missing)[:200]}"
        )
    return True


def draw(plan: ModelPlan, slices: Iterable[Slice], seed: int) -> None:
    """Draws this rank's parts. The values depend on the seed, the parameter's name and the place in it alone."""
    for part in slices:
        if part.tensor.numel():
            fill_box(plan, part.name, part.box.shape, part.box.offsets, part.tensor, seed)


def to_device(module: nn.Module, device: torch.device) -> None:
    """Moves a module; parts without values get what their `reset_parameters` sets. Shared parameters stay shared."""
    first: dict[int, str] = {}
    ties = [(name, first.setdefault(id(p), name)) for name, p in module.named_parameters(remove_duplicate=False)]
    empty = [part for part in module.modules() if any(p.is_meta for p in part.parameters(recurse=False))]
    if empty:
        module.to_empty(device=device)
        for part in empty:
            _reset(part)
        for name, original in ties:
            if name != original:
                _put(module, name, module.get_parameter(original))
    else:
        module.to(device)


def share_from_rank_0(module: nn.Module) -> None:
    """Gives every rank the first one's values: a model of one's own may have drawn them by chance."""
    tensors: list[Tensor] = [*module.parameters(), *module.buffers()]
    for tensor in tensors:
        dist.broadcast(tensor.detach(), src=0)


def _reset(part: nn.Module) -> None:
    reset: Any = getattr(part, "reset_parameters", None)
    if reset is None:
        raise InvalidLaunch(
            f"spec.trainer.model.factory: {type(part).__name__} is on the meta device and has no reset_parameters; "
            "build it with values, or return a Model with a plan"
        )
    reset()


def _put(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    owner, _, last = name.rpartition(".")
    setattr(module.get_submodule(owner), last, parameter)
