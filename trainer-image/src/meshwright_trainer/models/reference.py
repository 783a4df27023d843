"""Weights in the form of `transformers`, both ways.

A plan maps our names to theirs. Names that share one of theirs are its equal parts along the output dim, in the plan's
order: GPT-2 keeps query, key and value in one matrix. GPT-2's matrices are also stored input first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import torch
from torch import Tensor

from meshwright_trainer.models.base import Model, ModelPlan
from meshwright_trainer.models.errors import ReferenceMismatch

_INPUT_FIRST: Final = (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")


def to_reference(model: Model, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Our weights under the names and in the layout of `transformers`; aliases of tied weights are there too.

    Args:
        model: a model with a plan that has reference names.
        state: every parameter, whole, by logical name.

    Raises:
        ReferenceMismatch: the model has no counterpart, or a parameter is missing.
    """
    plan = _plan(model)
    aliases = {alias: group[0] for group in plan.tied for alias in group[1:]}
    absent = sorted({aliases.get(name, name) for name in plan.reference_names} - state.keys())
    if absent:
        raise ReferenceMismatch(f"parameters are missing: {', '.join(absent)}")
    return {
        theirs: _turned(theirs, torch.cat([state[aliases.get(name, name)] for name in ours]))
        for theirs, ours in _by_reference(plan).items()
    }


def from_reference(model: Model, reference: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `transformers` under our names and in our layout.

    Args:
        model: a model with a plan that has reference names.
        reference: a state dict of `transformers`. Aliases of tied weights may be left out of it.

    Raises:
        ReferenceMismatch: names are missing or unexpected, shapes differ, or copies of a tied weight differ.
    """
    plan = _plan(model)
    by_reference = _by_reference(plan)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.module.named_parameters()}
    aliases = {alias: group[0] for group in plan.tied for alias in group[1:]}
    optional = {plan.reference_names[alias] for alias in aliases}
    missing = sorted(by_reference.keys() - reference.keys() - optional)
    unexpected = sorted(reference.keys() - by_reference.keys())
    if missing or unexpected:
        raise ReferenceMismatch(
            f"missing: {', '.join(missing) or 'none'}; unexpected: {', '.join(unexpected) or 'none'}"
        )
    state: dict[str, Tensor] = {}
    copies: dict[str, Tensor] = {}
    for theirs, ours in by_reference.items():
        if theirs not in reference:
            continue
        for name, part in zip(ours, _turned(theirs, reference[theirs]).chunk(len(ours)), strict=True):
            (copies if name in aliases else state)[name] = part.contiguous()
    wrong = [
        f"{name} {tuple(state[name].shape)}, not {shape}"
        for name, shape in shapes.items()
        if state[name].shape != shape
    ]
    if wrong:
        raise ReferenceMismatch(f"shapes differ: {'; '.join(wrong)}")
    for alias, copy in copies.items():
        if not torch.equal(copy, state[aliases[alias]]):
            raise ReferenceMismatch(
                f"{plan.reference_names[alias]} differs from the weight that it is tied to; untie them"
            )
    return state


def _plan(model: Model) -> ModelPlan:
    if model.plan is None or not model.plan.reference_names:
        raise ReferenceMismatch(
            "the model has no counterpart in transformers: its plan has no reference names; export it with "
            "--names meshwright"
        )
    return model.plan


def _by_reference(plan: ModelPlan) -> dict[str, list[str]]:
    grouped: dict[str, list[str]] = {}
    for ours, theirs in plan.reference_names.items():
        grouped.setdefault(theirs, []).append(ours)
    return grouped


def _turned(theirs: str, weight: Tensor) -> Tensor:
    return weight.t().contiguous() if theirs.endswith(_INPUT_FIRST) else weight
