"""Keyed randomness: published numbers, statistics, and the same draw for any layout."""

from __future__ import annotations

import hashlib
import math
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from meshwright_trainer.random import Key, KeyedAttentionDropout, KeyedDropout, mix_, normal_box

GAMMA = 0x9E3779B97F4A7C15
SIGMAS = 5.0
"""How far a statistic may lie from its expectation; all seeds are fixed, so a test that passes always does."""


def a_key(seed: int = 7, step: int = 3, samples: int = 8, positions: int = 32) -> Key:
    return Key(seed, step, torch.arange(samples), torch.arange(positions))


def signed(word: int) -> int:
    word %= 1 << 64
    return word - (1 << 64) if word >> 63 else word


def chi_square_sigmas(counts: Tensor) -> float:
    """Distance of a chi-square statistic for equal cells from its mean, in its standard deviations."""
    expected = counts.sum().item() / counts.numel()
    statistic = ((counts.double() - expected) ** 2 / expected).sum().item()
    freedom = counts.numel() - 1
    return abs(statistic - freedom) / math.sqrt(2 * freedom)


def correlation_sigmas(a: Tensor, b: Tensor) -> float:
    pair = torch.stack([a.flatten().double(), b.flatten().double()])
    return abs(torch.corrcoef(pair)[0, 1].item()) * math.sqrt(a.numel())


@pytest.mark.parametrize(
    ("seed", "published"),
    [
        (0, (0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F)),
        (
            1234567,
            (
                6457827717110365317,
                3203168211198807973,
                9817491932198370423,
                4593380528125082431,
                16408922859458223821,
            ),
        ),
    ],
)
def test_the_finaliser_gives_the_published_numbers_of_splitmix64(seed: int, published: tuple[int, ...]) -> None:
    states = torch.tensor([signed(seed + (i + 1) * GAMMA) for i in range(len(published))])
    assert mix_(states).tolist() == [signed(word) for word in published]


def test_long_tensors_are_mixed_as_short_ones_are() -> None:
    states = torch.arange(200_000) * signed(GAMMA)
    long = mix_(states.clone())
    for begin in (0, 65_535, 131_071, 199_990):
        torch.testing.assert_close(mix_(states[begin : begin + 7].clone()), long[begin : begin + 7], rtol=0, atol=0)


def test_uniform_numbers_are_uniform_in_each_bit_and_cell() -> None:
    drawn = a_key(samples=16, positions=64).uniform("site", 256)
    assert drawn.dtype == torch.float32
    assert drawn.min() >= 0
    assert drawn.max() < 1
    as_integers = (drawn.double() * 2**24).long()
    assert torch.equal(as_integers.double() / 2**24, drawn.double()), "24 bits and no more"
    assert chi_square_sigmas(torch.bincount(as_integers.flatten() >> 16, minlength=256)) < SIGMAS
    assert chi_square_sigmas(torch.bincount(as_integers.flatten() & 0xFF, minlength=256)) < SIGMAS


@pytest.mark.parametrize("lag_dim", [0, 1, 2])
def test_neighbours_in_sample_position_and_feature_are_independent(lag_dim: int) -> None:
    drawn = a_key(samples=16, positions=64).uniform("site", 256)
    n = drawn.shape[lag_dim]
    a, b = drawn.narrow(lag_dim, 0, n - 1), drawn.narrow(lag_dim, 1, n - 1)
    assert correlation_sigmas(a, b) < SIGMAS
    cells = (a * 16).long() * 16 + (b * 16).long()
    assert chi_square_sigmas(torch.bincount(cells.flatten(), minlength=256)) < SIGMAS


@pytest.mark.parametrize(
    ("other", "site"),
    [(a_key(step=4), "site"), (a_key(seed=8), "site"), (a_key(), "site2"), (a_key(), "blocks.1.attention")],
)
def test_other_steps_seeds_and_sites_draw_independently(other: Key, site: str) -> None:
    assert correlation_sigmas(a_key().uniform("site", 256), other.uniform(site, 256)) < SIGMAS


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_keep_is_the_comparison_with_the_uniform_number(p: float) -> None:
    key = a_key()
    assert torch.equal(key.keep("site", p, 256), key.uniform("site", 256).double() >= p)
    assert abs(key.keep("site", p, 256).double().mean().item() - (1 - p)) < SIGMAS * math.sqrt(p * (1 - p) / 65536)


def test_integers_are_even_over_a_range_that_is_no_power_of_two() -> None:
    drawn = a_key(samples=64, positions=512).integers("site", 300)
    assert drawn.shape == (64, 512)
    assert drawn.min() == 0
    assert drawn.max() == 299
    assert chi_square_sigmas(torch.bincount(drawn.flatten(), minlength=300)) < SIGMAS


@settings(max_examples=30, deadline=None)
@given(st.permutations(range(6)), st.integers(1, 5))
def test_t45_a_mask_belongs_to_the_sample_whatever_micro_batch_it_falls_into(order: list[int], cut: int) -> None:
    """However the global batch is permuted and cut over ranks and micro-batches, each sample keeps its mask."""
    whole = Key(1, 2, torch.arange(6), torch.arange(8))
    for part in (order[:cut], order[cut:]):
        key = Key(1, 2, torch.tensor(part), torch.arange(8))
        assert torch.equal(key.keep("site", 0.3, 5), whole.keep("site", 0.3, 5)[part])
        pairs = whole.keep_pairs("site", 0.3, 2, torch.arange(8))[part]
        assert torch.equal(key.keep_pairs("site", 0.3, 2, torch.arange(8)), pairs)


def test_t45_a_part_of_the_sequence_or_of_the_features_has_its_part_of_the_mask() -> None:
    whole = a_key().keep("site", 0.3, 12)
    part = Key(7, 3, torch.arange(8), torch.arange(16, 32))
    assert torch.equal(part.keep("site", 0.3, 12), whole[:, 16:])
    assert torch.equal(a_key().keep("site", 0.3, 5), whole[..., :5])
    rows = Key(7, 3, torch.arange(8), torch.arange(16, 32).expand(8, 16))
    assert torch.equal(rows.keep("site", 0.3, 12), whole[:, 16:])


def test_masks_of_attention_weights_differ_by_query_head_and_key_and_know_no_length() -> None:
    key = a_key(samples=4, positions=64)
    kept = key.keep_pairs("site", 0.5, 4, torch.arange(64))
    for dim in range(4):
        n = kept.shape[dim]
        assert correlation_sigmas(kept.narrow(dim, 0, n - 1), kept.narrow(dim, 1, n - 1)) < SIGMAS
    assert correlation_sigmas(kept, kept.transpose(2, 3)) < SIGMAS
    short = Key(7, 3, torch.arange(4), torch.arange(16)).keep_pairs("site", 0.5, 4, torch.arange(16))
    assert torch.equal(kept[:, :, :16, :16], short)


def test_draws_stay_the_same_from_version_to_version() -> None:
    """A change here changes every run that is resumed with the new version: it needs a reason and a changelog entry.

    It also proves that names are hashed alike in every process, since Python's own hash of a string is not.
    """
    drawn = a_key().uniform("site", 16).numpy().tobytes() + normal_box(7, "w", (64,), (0,), (64,)).numpy().tobytes()
    assert hashlib.sha256(drawn).hexdigest()[:16] == "4891281fc1430d50"


def test_dropout_is_the_identity_without_training_or_probability() -> None:
    x = torch.randn(2, 3, 4)
    key = a_key(samples=2, positions=3)
    assert KeyedDropout("site", 0.0).train()(x, key) is x
    assert KeyedDropout("site", 0.5).eval()(x, key) is x
    weights = torch.rand(2, 1, 3, 3)
    assert KeyedAttentionDropout("site", 0.5).eval()(weights, key) is weights


def test_dropout_zeroes_and_scales_values_and_gradients() -> None:
    key = a_key()
    x = torch.randn(8, 32, 64, dtype=torch.float64, requires_grad=True)
    y = KeyedDropout("site", 0.25)(x, key)
    kept = key.keep("site", 0.25, 64).double() / 0.75
    torch.testing.assert_close(y, x * kept, rtol=1e-15, atol=0)
    y.sum().backward()
    torch.testing.assert_close(x.grad, kept, rtol=1e-15, atol=0)


@pytest.mark.parametrize("p", [-0.1, 1.0])
def test_a_probability_that_leaves_nothing_is_refused(p: float) -> None:
    with pytest.raises(ValueError, match=r"in \[0, 1\)"):
        KeyedDropout("site", p)


def parts(whole: int, offset: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.integers(0, whole - offset).map(lambda size: (offset, size))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_box_of_a_tensor_can_be_drawn_alone(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 9), min_size=0, max_size=4)))
    # Dims that are whole are as likely as any part of them: boxes of sharded tensors have many.
    boxes = tuple(data.draw(st.just((0, n)) | st.integers(0, n).flatmap(partial(parts, n))) for n in shape)
    offsets, sizes = tuple(o for o, _ in boxes), tuple(n for _, n in boxes)
    whole = normal_box(5, "w", shape, (0,) * len(shape), shape)
    slices = tuple(slice(o, o + n) for o, n in zip(offsets, sizes, strict=True))
    assert torch.equal(normal_box(5, "w", shape, offsets, sizes), whole[slices])


def test_a_box_of_a_tensor_of_many_chunks_is_its_slice() -> None:
    whole = normal_box(5, "w", (700, 333), (0, 0), (700, 333))
    assert torch.equal(normal_box(5, "w", (700, 333), (311, 0), (389, 333)), whole[311:])
    assert torch.equal(normal_box(5, "w", (700, 333), (13, 17), (501, 300)), whole[13:514, 17:317])


def test_normal_numbers_are_normal() -> None:
    drawn = normal_box(5, "w", (1 << 20,), (0,), (1 << 20,)).double()
    assert drawn.isfinite().all()
    through = torch.special.ndtr(drawn)  # uniform if the numbers are normal
    assert chi_square_sigmas(torch.bincount((through * 1000).long(), minlength=1000)) < SIGMAS
    assert correlation_sigmas(drawn[:-1], drawn[1:]) < SIGMAS
    others = (normal_box(5, "v", (1 << 16,), (0,), (1 << 16,)), normal_box(6, "w", (1 << 16,), (0,), (1 << 16,)))
    assert all(correlation_sigmas(drawn[: 1 << 16], other) < SIGMAS for other in others)
    # Four standard deviations: 66.4 of 2^20 on average.
    assert abs((drawn.abs() > 4).sum().item() - 66.4) < SIGMAS * math.sqrt(66.4)
