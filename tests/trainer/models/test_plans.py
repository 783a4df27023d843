"""The plans beside the models: every pattern fits something, every parameter has a beginning."""

from __future__ import annotations

import math
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from meshwright_api.trainer import Model as ModelSpec
from meshwright_trainer.batch import Batch
from meshwright_trainer.models.base import Init, Model, ModelPlan
from meshwright_trainer.models.errors import PlanMismatch
from meshwright_trainer.models.initialise import fill_box, initialised
from meshwright_trainer.models.registry import build_model
from meshwright_trainer.models.units import unit_names
from meshwright_trainer.random import Key, normal_box

FAMILIES = ("gpt3", "bert")


def a_model(family: str, **fields: Any) -> Model:
    return build_model(ModelSpec(name=family, preset="tiny", **fields), vocabulary_size=260, sequence_length=32)


def plan_of(model: Model) -> ModelPlan:
    assert model.plan is not None
    return model.plan


def names(model: Model) -> list[str]:
    return [name for name, _ in model.module.named_parameters()]


def first_fit(plan: ModelPlan, name: str) -> str:
    return next(pattern for pattern in plan.init if fnmatchcase(name, pattern))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_has_a_beginning_and_every_pattern_a_parameter(family: str, tied: bool) -> None:
    model = a_model(family, tie_embeddings=tied)
    plan = plan_of(model)
    assert {first_fit(plan, name) for name in names(model)} == set(plan.init)
    for pattern in plan.no_decay:
        assert any(fnmatchcase(name, pattern) for name in names(model)), pattern


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_weight_is_registered_once_under_the_first_name_of_its_group(family: str, tied: bool) -> None:
    model = a_model(family, tie_embeddings=tied)
    every = [name for name, _ in model.module.named_parameters(remove_duplicate=False)]
    assert every == names(model)
    groups = plan_of(model).tied
    assert ("token_embedding.weight" in {group[0] for group in groups}) is tied
    for first, *aliases in groups:
        assert first in every
        assert not set(aliases) & set(every)
    assert set(plan_of(model).reference_names) == set(every) | {alias for _, *rest in groups for alias in rest} | (
        set() if tied else {"head.weight" if family == "gpt3" else "head.decoder.weight"}
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_only_matrices_decay(family: str) -> None:
    model = a_model(family)
    for name, parameter in model.module.named_parameters():
        spared = any(fnmatchcase(name, pattern) for pattern in plan_of(model).no_decay)
        assert spared is (parameter.dim() == 1), name


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_begin_as_the_papers_say(family: str) -> None:
    module = initialised(a_model(family), seed=4)
    scaled = 0.02 / math.sqrt(2 * 4) if family == "gpt3" else 0.02
    for name, parameter in module.named_parameters():
        if parameter.dim() == 1:
            assert (parameter == (1.0 if name.endswith("norm.weight") else 0.0)).all(), name
        else:
            std = scaled if name.endswith(("output.weight", "down.weight")) else 0.02
            error = 5 * std / math.sqrt(2 * parameter.numel())  # five standard errors of a standard deviation
            assert abs(parameter.std().item() - std) < error, name
            assert abs(parameter.mean().item()) < 5 * std / math.sqrt(parameter.numel()), name
    matrices = [parameter for parameter in module.parameters() if parameter.dim() == 2]
    assert len({parameter.flatten()[0].item() for parameter in matrices}) == len(matrices), "each has its own numbers"


@pytest.mark.parametrize("family", FAMILIES)
def test_boxes_and_other_precisions_begin_with_the_same_numbers(family: str) -> None:
    model = a_model(family)
    plan = plan_of(model)
    whole = {name: p.detach() for name, p in initialised(a_model(family), seed=4).named_parameters()}
    exact = dict(initialised(a_model(family), seed=4, dtype=torch.float64).named_parameters())
    half = dict(initialised(a_model(family), seed=4, dtype=torch.bfloat16).named_parameters())
    for name, tensor in whole.items():
        assert torch.equal(exact[name], tensor.double())
        assert torch.equal(half[name], tensor.bfloat16())
        rows = tensor.shape[0]
        box = torch.full((rows - rows // 3, *tensor.shape[1:]), math.nan)
        fill_box(plan, name, tuple(tensor.shape), (rows // 3, *(0,) * (tensor.dim() - 1)), box, seed=4)
        assert torch.equal(box, tensor[rows // 3 :]), name


def test_a_parameter_may_begin_around_a_mean() -> None:
    plan = ModelPlan(units=(), init={"gate": Init(std=0.5, mean=2.0)})
    box = torch.empty(3, 4)
    fill_box(plan, "gate", (5, 4), (2, 0), box, seed=9)
    torch.testing.assert_close(box, 2.0 + 0.5 * normal_box(9, "gate", (5, 4), (2, 0), (3, 4)), rtol=0, atol=1e-6)


def test_a_parameter_that_the_plan_forgets_is_named() -> None:
    model = a_model("gpt3")
    with pytest.raises(PlanMismatch, match=r"fits the parameter 'token_embedding.weight'; add one"):
        initialised(
            replace(model, plan=replace(plan_of(model), init={"blocks.*": plan_of(model).init["*.bias"]})), seed=0
        )
    with pytest.raises(PlanMismatch, match="without a plan"):
        initialised(replace(model, plan=None), seed=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_units_are_the_layers_in_order(family: str) -> None:
    model = a_model(family)
    assert unit_names(model.module, model.plan) == ("blocks.0", "blocks.1", "blocks.2", "blocks.3")
    assert unit_names(model.module, None) == ("blocks.0", "blocks.1", "blocks.2", "blocks.3")


def test_units_without_a_plan_are_listed_modules_or_else_the_children() -> None:
    nested = nn.Sequential(nn.ModuleList([nn.ModuleList([nn.Linear(1, 1)]), nn.Linear(1, 1)]), nn.Linear(1, 1))
    assert unit_names(nested, None) == ("0.0", "0.1")
    assert unit_names(nn.ModuleList([nn.Linear(1, 1)]), None) == ("0",)
    assert unit_names(nn.Sequential(nn.Linear(1, 1), nn.ReLU()), None) == ("0", "1")


def test_a_unit_that_fits_nothing_is_named() -> None:
    model = a_model("gpt3")
    with pytest.raises(PlanMismatch, match=r"unit 'layers\.\*' fits no module of GPT3"):
        unit_names(model.module, replace(plan_of(model), units=("layers.*",)))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("tied", [True, False])
def test_operations_are_those_that_torch_counts(family: str, tied: bool) -> None:
    """Forward and backward, in which nothing is left out but the gradient of the tokens, which are no numbers."""
    model = a_model(family, tie_embeddings=tied, attention_dropout=0.1)  # materialised: the counter sees its products
    length = 32
    ids = torch.zeros(2, length, dtype=torch.int64, device="meta")
    batch = Batch(ids, ids, ids.float(), ids[:, 0], ids, ids)
    plan = plan_of(model)
    assert plan.flops_per_token is not None
    with FlopCounterMode(display=False) as counter:
        model.module.train()(batch, Key(0, 1, batch.sample_id, torch.arange(length, device="meta"))).sum().backward()
    assert counter.get_total_flops() == plan.flops_per_token(length) * 2 * length
