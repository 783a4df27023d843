"""Full recomputation: a unit keeps its inputs only and runs again in the backward pass (Chen et al. 2016).

Everything random is keyed, so the second run draws what the first drew: no generator's state is kept or put back, and
the gradients have the same bits with and without.
"""

from __future__ import annotations

import functools
from typing import Final

from torch import nn
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
            unit.forward = functools.partial(checkpoint, unit.forward, use_reentrant=False, preserve_rng_state=False)
    return names
