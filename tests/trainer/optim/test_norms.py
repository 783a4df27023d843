"""Norms and clipping against torch's, alone and on several ranks."""

from __future__ import annotations

import math

import pytest
import torch

from meshwright_trainer.optim.norms import canonical_norm, clip_coefficient, global_norm
from meshwright_trainer.parallel.boxes import box_of
from tests.trainer.optim.tasks import gradients
from tests.trainer.pool import Pool


def test_the_norm_is_torchs() -> None:
    found = gradients()
    expected = torch.nn.utils.get_total_norm(found).item()
    assert global_norm(found, None) == pytest.approx(expected, rel=1e-14)
    assert canonical_norm(found, [box_of(tuple(g.shape)) for g in found], None) == pytest.approx(expected, rel=1e-14)


def test_a_large_gradient_of_32_bits_has_the_norm_of_its_64_bits() -> None:
    gradient = torch.randn(20_000_000, generator=torch.Generator().manual_seed(1))
    assert global_norm([gradient], None) == pytest.approx(gradient.double().norm().item(), rel=1e-6)


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_parts_count_once_and_in_canonical_order_give_the_same_bits(pool: Pool, ranks: int) -> None:
    whole = gradients()
    bits = canonical_norm(whole, [box_of(tuple(g.shape)) for g in whole], None)
    for norm, canonical in pool.run(ranks, "tests.trainer.optim.tasks:norms_of_parts"):
        assert norm == pytest.approx(global_norm(whole, None), rel=1e-14)
        assert canonical == bits


@pytest.mark.parametrize("fault", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_shows(fault: float) -> None:
    found = gradients()
    found[1][0] = fault
    assert not math.isfinite(global_norm(found, None))
    assert not math.isfinite(canonical_norm(found, [box_of(tuple(g.shape)) for g in found], None))


@pytest.mark.parametrize("limit", [0.01, 1.0, 1e6])
def test_clipping_is_torchs(limit: float) -> None:
    found = gradients()
    parameters = [torch.nn.Parameter(torch.zeros_like(g)) for g in found]
    for parameter, gradient in zip(parameters, found, strict=True):
        parameter.grad = gradient.clone()
    norm = torch.nn.utils.clip_grad_norm_(parameters, limit)
    for parameter, gradient in zip(parameters, found, strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(gradient * clip_coefficient(norm.item(), limit), parameter.grad, rtol=1e-15, atol=0)


def test_without_a_limit_nothing_is_clipped() -> None:
    assert clip_coefficient(1e30, None) == 1.0
