"""Update rules against torch.optim."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from meshwright_trainer.optim.updates import SGD, AdamW, Moment, Rule

SHAPES = ((7, 5), (3,), (1, 1), (0, 4))
STEPS = 12


def tensors(seed: int) -> list[Tensor]:
    chance = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, dtype=torch.float64, generator=chance) for shape in SHAPES]


def ours(rule: Rule, weight_decay: float) -> list[Tensor]:
    parameters = tensors(0)
    state = {kind: [torch.zeros_like(p) for p in parameters] for kind in rule.kinds}
    for step in range(1, STEPS + 1):
        moment = Moment(parameters, tensors(step), state)
        rule(moment, rate=0.1 / step, weight_decay=weight_decay, count=step)
    return parameters


def theirs(kind: Any, **arguments: Any) -> list[Tensor]:
    parameters = [torch.nn.Parameter(p) for p in tensors(0)]
    optimizer = kind(parameters, lr=1.0, **arguments)
    for step in range(1, STEPS + 1):
        for parameter, gradient in zip(parameters, tensors(step), strict=True):
            parameter.grad = gradient
        optimizer.param_groups[0]["lr"] = 0.1 / step
        optimizer.step()
    return [p.detach() for p in parameters]


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_adamw_is_torchs(fused: bool, weight_decay: float) -> None:
    found = ours(AdamW((0.8, 0.95), 1e-6, fused), weight_decay)
    expected = theirs(torch.optim.AdamW, betas=(0.8, 0.95), eps=1e-6, weight_decay=weight_decay)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_sgd_is_torchs(momentum: float) -> None:
    for a, b in zip(ours(SGD(momentum), 0.0), theirs(torch.optim.SGD, momentum=momentum), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


def test_weight_decay_of_plain_sgd_is_torchs() -> None:
    # Without momentum a decoupled decay and one that is added to the gradient are the same.
    for a, b in zip(ours(SGD(), 0.3), theirs(torch.optim.SGD, weight_decay=0.3), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-14)


def test_decay_does_not_enter_the_momentum() -> None:
    parameter, gradient = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    state = {"momentum_buffer": [torch.zeros(1, dtype=torch.float64)]}
    for step in range(1, 4):
        SGD(0.9)(Moment([parameter], [gradient], state), rate=0.1, weight_decay=0.5, count=step)
    assert parameter.item() == pytest.approx(0.95**3, rel=1e-15)


@pytest.mark.parametrize("rule", [AdamW((0.9, 0.999), 1e-8, fused=False), SGD(0.9)])
def test_in_canonical_order_a_part_is_updated_as_in_the_whole(rule: Rule) -> None:
    chance = torch.Generator().manual_seed(0)
    whole, gradient = torch.randn(1000, generator=chance), torch.randn(1000, generator=chance)
    parts = [p.clone() for p in whole.split(37)]
    for tensors_, gradients in (([whole], [gradient]), (parts, list(gradient.split(37)))):
        state = {kind: [torch.zeros_like(t) for t in tensors_] for kind in rule.kinds}
        for step in range(1, 6):
            rule(Moment(tensors_, gradients, state), rate=1e-3, weight_decay=0.1, count=step)
    assert torch.equal(torch.cat(parts), whole)
