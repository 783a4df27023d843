"""The grain that recompute and sharding work in."""

from __future__ import annotations

from fnmatch import fnmatchcase

from torch import nn

from meshwright_trainer.models.base import ModelPlan
from meshwright_trainer.models.errors import PlanMismatch


def unit_names(module: nn.Module, plan: ModelPlan | None) -> tuple[str, ...]:
    """Names of the modules that are treated as one, in the order of the forward pass; none lies in another.

    A pattern's `*` also fits what lies within a unit: of modules within each other the outermost counts. Without a plan
    the units are the children of each `ModuleList`, and if there is none, the module's own children.

    Raises:
        PlanMismatch: a pattern of the plan fits no module.
    """
    names = [name for name, _ in module.named_modules() if name]
    if plan is None:
        listed = [
            f"{name}.{child}" if name else child
            for name, part in module.named_modules()
            if isinstance(part, nn.ModuleList)
            for child, _ in part.named_children()
        ]
        return _outermost(listed) or tuple(name for name, _ in module.named_children())
    for pattern in plan.units:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise PlanMismatch(f"the model plan's unit {pattern!r} fits no module of {type(module).__name__}")
    return _outermost([name for name in names if any(fnmatchcase(name, pattern) for pattern in plan.units)])


def _outermost(names: list[str]) -> tuple[str, ...]:
    """Without those that lie in another of them."""
    return tuple(name for name in names if not any(name.startswith(f"{other}.") for other in names))
