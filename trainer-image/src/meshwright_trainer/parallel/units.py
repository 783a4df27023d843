"""Which modules are gathered as one, and what is trained."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import nn

from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.models.base import ModelPlan
from meshwright_trainer.models.units import unit_names


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether any of the patterns fits the name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def units_of(module: nn.Module, plan: ModelPlan | None) -> list[nn.Module]:
    """The units that are sharded, in the order of the forward pass.

    A module that shares a parameter with something outside of it is no unit of its own, since the parameter must be
    there as long as any of its users runs.
    """
    parameters = list(module.named_parameters(remove_duplicate=False))
    return [module.get_submodule(name) for name in unit_names(module, plan) if not _shares(name, parameters)]


def freeze(module: nn.Module, trainable: Sequence[str]) -> None:
    """Leaves a gradient to the parameters that a pattern fits; without patterns to all.

    Raises:
        InvalidLaunch: a pattern fits no parameter, or nothing is left to train.
    """
    names = [name for name, _ in module.named_parameters()]
    for pattern in trainable:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise InvalidLaunch(
                f"spec.trainer.trainable: {pattern!r} fits no parameter; there are for example {', '.join(names[:5])}"
            )
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(parameter.requires_grad and (not trainable or matches(name, trainable)))
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise InvalidLaunch("spec.trainer.model: no parameter has a gradient, so there is nothing to train")


def _shares(unit: str, parameters: Sequence[tuple[str, nn.Parameter]]) -> bool:
    inside = {id(p) for name, p in parameters if name.startswith(f"{unit}.")}
    return not inside or any(id(p) in inside for name, p in parameters if not name.startswith(f"{unit}."))
