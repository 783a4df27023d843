"""Attention against a loop over positions in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from meshwright_trainer.attention import MaskSpec, attention

Drop = Callable[[Tensor], Tensor] | None

MASKS = [
    MaskSpec(),
    MaskSpec(causal=True),
    MaskSpec(causal=True, window=3),
    MaskSpec(window=2),
    MaskSpec(documents=True),
    MaskSpec(causal=True, documents=True),
    MaskSpec(causal=True, documents=True, window=2),
]


def sees(mask: MaskSpec, documents: list[int], row: int, column: int) -> bool:
    """The rule, in words of its own."""
    if mask.causal and column > row:
        return False
    if mask.window is not None and abs(row - column) >= mask.window:
        return False
    return not mask.documents or documents[row] == documents[column]


def by_loop(q: Tensor, k: Tensor, v: Tensor, mask: MaskSpec, document_id: Tensor) -> Tensor:
    out = torch.zeros_like(q)
    for b, h, t in ((b, h, t) for b in range(q.shape[0]) for h in range(q.shape[1]) for t in range(q.shape[2])):
        columns = [s for s in range(k.shape[2]) if sees(mask, document_id[b].tolist(), t, s)]
        scores = [math.exp(float(q[b, h, t] @ k[b, h, s]) / math.sqrt(q.shape[-1])) for s in columns]
        for s, score in zip(columns, scores, strict=True):
            out[b, h, t] += score / sum(scores) * v[b, h, s]
    return out


def inputs(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(2, 2, 6, 4, generator=generator, dtype=torch.float64).to(dtype) for _ in range(3))
    return q, k, v, torch.tensor([[0, 0, 0, 1, 1, 2], [0, 0, 0, 0, -1, -1]])


@pytest.mark.parametrize("mask", MASKS, ids=str)
@pytest.mark.parametrize("dropout", [None, lambda weights: weights], ids=["kernel", "materialised"])
def test_both_paths_equal_the_loop(mask: MaskSpec, dropout: Drop) -> None:
    q, k, v, document_id = inputs()
    out = attention(q, k, v, mask, mask.visible(document_id), dropout)
    torch.testing.assert_close(out, by_loop(q, k, v, mask, document_id), rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("mask", [MaskSpec(), MaskSpec(causal=True)], ids=str)
def test_no_mask_is_made_where_the_kernel_knows_it(mask: MaskSpec) -> None:
    assert mask.visible(torch.zeros(2, 6, dtype=torch.int64)) is None


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("dropout", [None, lambda weights: weights], ids=["kernel", "materialised"])
def test_a_sample_of_padding_alone_gives_neither_nan_nor_infinity(dtype: torch.dtype, dropout: Drop) -> None:
    q, k, v, _ = inputs(dtype)
    q.requires_grad_()
    for mask in MASKS:
        visible = mask.visible(torch.full((2, 6), -1))
        out = attention(q, k, v, mask, visible, dropout)
        (gradient,) = torch.autograd.grad(out.float().sum(), q)
        assert out.isfinite().all()
        assert gradient.isfinite().all()
        assert out.dtype == dtype


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-1, 2), min_size=2, max_size=7), st.booleans(), st.none() | st.integers(1, 4))
def test_every_position_sees_itself_and_follows_the_rule(
    documents: list[int], causal: bool, window: int | None
) -> None:
    mask = MaskSpec(causal=causal, window=window, documents=True)
    visible = mask.visible(torch.tensor([documents]))
    assert visible is not None
    n = len(documents)
    assert visible[0, 0].tolist() == [[sees(mask, documents, row, column) for column in range(n)] for row in range(n)]
    assert visible[0, 0].diagonal().all()


def test_dropout_falls_on_normed_weights_and_leaves_their_scale_to_the_caller() -> None:
    q, k, v, document_id = inputs()
    mask = MaskSpec(causal=True)
    seen: list[Tensor] = []

    def look(weights: Tensor) -> Tensor:
        seen.append(weights)
        return weights * 2

    doubled = attention(q, k, v, mask, mask.visible(document_id), look)
    torch.testing.assert_close(doubled, attention(q, k, v, mask, None) * 2, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(seen[0].sum(dim=-1), torch.ones(2, 2, 6, dtype=torch.float64), rtol=1e-15, atol=0)


def test_a_window_without_oneself_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 position"):
        MaskSpec(window=0)
