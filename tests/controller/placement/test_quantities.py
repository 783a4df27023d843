from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.placement.errors import InvalidQuantity
from meshwright.placement.supply.quantities import MAX, millis, units
from tests.controller.placement.clusters import a_few


@pytest.mark.parametrize(
    ("quantity", "in_units", "in_millis"),
    [
        ("0", 0, 0),
        ("1", 1, 1000),
        ("500m", 1, 500),
        ("1500m", 2, 1500),
        ("0.1", 1, 100),
        (".5", 1, 500),
        ("5.", 5, 5000),
        ("+3", 3, 3000),
        ("100n", 1, 1),
        ("250u", 1, 1),
        ("2k", 2000, 2_000_000),
        ("1M", 10**6, 10**9),
        ("1G", 10**9, 10**12),
        ("1T", 10**12, 10**15),
        ("1P", 10**15, 10**18),
        ("1E", 10**18, MAX),
        ("1Ki", 1024, 1024_000),
        ("1.5Gi", 3 * 2**29, 3 * 2**29 * 1000),
        ("3Mi", 3 * 2**20, 3 * 2**20 * 1000),
        ("2Ti", 2**41, 2**41 * 1000),
        ("1Pi", 2**50, 2**50 * 1000),
        ("1Ei", 2**60, MAX),
        ("1e3", 1000, 10**6),
        ("1E3", 1000, 10**6),
        ("12e-1", 2, 1200),
        ("9e18", 9 * 10**18, MAX),
        ("9223372036854775807", MAX, MAX),
        ("9223372036854775808", MAX, MAX),
        ("1e300", MAX, MAX),
        ("-2", -2, -2000),
        (8, 8, 8000),
        (0.5, 1, 500),
        (1e-3, 1, 1),
        (2e21, MAX, MAX),
    ],
)
def test_means_what_kubernetes_says(quantity: object, in_units: int, in_millis: int) -> None:
    assert (units(quantity), millis(quantity)) == (in_units, in_millis)


@pytest.mark.parametrize(
    "text", ["", " ", "1 ", "Gi", "1gi", "1 Gi", "1KiB", "1GB", "0x10", "1_000", "1,5", "--1", "1e", "inf", "nan", "m"]
)
def test_refuses_what_is_no_quantity(text: str) -> None:
    with pytest.raises(InvalidQuantity, match="no quantity"):
        units(text)


@pytest.mark.parametrize("value", [None, True, [], {}, ["1"], float("nan"), float("inf")])
def test_refuses_what_is_no_text_or_number(value: object) -> None:
    with pytest.raises(InvalidQuantity, match="no quantity"):
        millis(value)


@a_few
@given(st.integers(0, 10**6), st.sampled_from([("m", 1, 1000), ("", 1, 1), ("k", 1000, 1), ("Mi", 2**20, 1)]))
def test_rounds_up_to_the_next_whole_unit(number: int, suffix: tuple[str, int, int]) -> None:
    text, times, over = suffix
    assert units(f"{number}{text}") == -(-number * times // over)
