"""The global order against brute force."""

import itertools
import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright_trainer.data.errors import SourceError
from meshwright_trainer.data.order import MAX_PARTS, Order, Place, global_order, parts_of


@pytest.mark.parametrize("size", [*range(1, 40), 97, 100, 101, 1000, 4096, 4097])
def test_an_epoch_is_a_permutation(size: int) -> None:
    order = global_order(3, 0, size)
    assert sorted(order[position] for position in range(size)) == list(range(size))


def test_a_huge_source_needs_no_table() -> None:
    order = global_order(1, 0, 10**15)
    drawn = {order[position] for position in range(2000)}
    assert len(drawn) == 2000
    assert max(drawn) > 9 * 10**14


def test_orders_depend_on_seed_epoch_and_source() -> None:
    orders = {
        tuple(global_order(*key)[i] for i in range(50)) for key in ((0, 0, 50), (1, 0, 50), (0, 1, 50), (0, 0, 50, 1))
    }
    assert len(orders) == 4


@pytest.mark.parametrize("size", [2, 3, 4, 7, 10])
def test_every_sample_is_as_likely_at_every_place(size: int) -> None:
    """Chi-square over many seeds, (place, sample) cells; 5 standard deviations above its mean at most."""
    epochs = 2000
    seen = Counter(
        (position, global_order(5, epoch, size)[position]) for epoch in range(epochs) for position in range(size)
    )
    expected = epochs / size
    statistic = sum((seen[p, s] - expected) ** 2 / expected for p in range(size) for s in range(size))
    freedom = (size - 1) ** 2
    assert statistic < freedom + 5 * math.sqrt(2 * freedom)


def test_neighbours_do_not_stay_neighbours() -> None:
    """Of a random permutation's n - 1 steps about one is +1."""
    size = 10_000
    order = global_order(2, 0, size)
    drawn = [order[position] for position in range(size)]
    assert sum(b - a == 1 for a, b in itertools.pairwise(drawn)) < 10


def test_a_run_goes_through_each_epoch_exactly_once() -> None:
    order = Order(7, [13])
    for epoch in range(4):
        places = [order[sample] for sample in range(13 * epoch, 13 * (epoch + 1))]
        assert {place.epoch for place in places} == {epoch}
        assert sorted(place.index for place in places) == list(range(13))


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(1, 60), min_size=1, max_size=6))
def test_shares_are_exact_to_one_sample_at_every_prefix(weights: list[int]) -> None:
    order, total = Order(0, [1000] * len(weights), weights), sum(weights)
    drawn = [0] * len(weights)
    for sample in range(2 * total + 3):
        drawn[order[sample].source] += 1
        for source, weight in enumerate(weights):
            assert abs(drawn[source] - Fraction(weight * (sample + 1), total)) < 1


def test_each_source_of_a_mixture_has_epochs_of_its_own() -> None:
    lengths = [5, 11, 3]
    order = Order(1, lengths, [0.5, 0.3, 0.2])
    drawn: dict[int, list[Place]] = {0: [], 1: [], 2: []}
    for sample in range(400):
        drawn[order[sample].source].append(order[sample])
    for source, places in drawn.items():
        size = lengths[source]
        for epoch in range(len(places) // size):
            part = places[epoch * size : (epoch + 1) * size]
            assert {place.epoch for place in part} == {epoch}
            assert sorted(place.index for place in part) == list(range(size))


def test_weights_are_the_decimals_that_were_written() -> None:
    assert parts_of([0.7, 0.2, 0.1]) == (7, 2, 1)
    assert parts_of([1.0, 1.0]) == (1, 1)
    assert parts_of([3.0]) == (1,)
    assert parts_of([2.0e20, 1.0e20]) == (2, 1)


def test_weights_that_are_too_fine_are_rounded_and_none_vanishes() -> None:
    parts = parts_of([0.3333333, 0.6666667, 1e-9])
    assert sum(parts) <= MAX_PARTS + len(parts)
    assert min(parts) == 1
    assert abs(parts[0] / sum(parts) - 1 / 3) < 1e-4


@pytest.mark.parametrize("weights", [[], [0.0], [-1.0, 2.0], [math.inf], [math.nan]])
def test_weights_that_mean_nothing_are_refused(weights: list[float]) -> None:
    with pytest.raises(SourceError, match=r"sources: weights are positive"):
        parts_of(weights)


def test_a_source_without_samples_is_refused() -> None:
    with pytest.raises(SourceError, match="3, 0"):
        Order(0, [3, 0], [1, 1])
