"""Full recomputation: a unit keeps its inputs only and runs again in the backward pass (Chen et al. 2016).

Everything random is keyed, so the second run draws what the first drew: no generator's state is kept or put back, and
the gradients have the same bits with and without. What a unit counts, such as running statistics, is another matter:
the second run begins with what the first began with, and leaves no trace.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Final

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from meshwright_trainer.models.base import ModelPlan
from meshwright_trainer.models.units import unit_names

_MARK: Final = "_recomputed"


def apply_recompute(module: nn.Module, plan: ModelPlan | None = None) -> tuple[str, ...]:
    """Makes every unit of the module recompute itself; to be called before anything shards it.

    Only `forward` is replaced, so the names of modules and parameters stay, and hooks that gather a unit's parameters
    around its forward and backward pass enclose the second run too.

    Args:
        module: the model; changed in place. Doing it again changes nothing.
        plan: names the units; without one see `unit_names`.

    Returns:
        The names of the units.

    Raises:
        PlanMismatch: a pattern of the plan fits no module.
    """
    names = unit_names(module, plan)
    for name in names:
        unit = module.get_submodule(name)
        if not hasattr(unit, _MARK):
            setattr(unit, _MARK, True)
            unit.forward = functools.partial(
                checkpoint,
                unit.forward,
                use_reentrant=False,
                preserve_rng_state=False,
                context_fn=functools.partial(_both_runs, unit),
            )
    return names


def _both_runs(unit: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    """What the first and the second run happen in; called just before the first."""
    state = _state(unit) if torch.is_grad_enabled() else []
    return nullcontext(), _AsBegun(state) if state else nullcontext()


def _state(unit: nn.Module) -> list[tuple[nn.Module, str, Tensor | None]]:
    """The unit's persistent buffers by owner and name, copied.

    Those that are not persistent are derived values, such as a mask, and may be large: they are neither copied nor put
    back.
    """
    return [
        (part, name, None if buffer is None else buffer.detach().clone())
        for part in unit.modules()
        for name, buffer in part._buffers.items()
        if name not in part._non_persistent_buffers_set
    ]


class _AsBegun:
    """While it is entered, modules hold copies of the buffers that they began with; entered once per backward pass."""

    def __init__(self, begun: list[tuple[nn.Module, str, Tensor | None]]) -> None:
        self._begun = begun
        self._now: list[Tensor | None] = []

    def __enter__(self) -> None:
        self._now = [part._buffers[name] for part, name, _ in self._begun]
        for part, name, buffer in self._begun:
            part._buffers[name] = None if buffer is None else buffer.clone()

    def __exit__(self, *error: object) -> None:
        for (part, name, _), buffer in zip(self._begun, self._now, strict=True):
            part._buffers[name] = buffer
        self._now = []
