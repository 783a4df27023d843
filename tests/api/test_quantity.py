"""Quantities, in the forms that people write."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright_api.quantity import parse, whole


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (8, 8),
        ("8", 8),
        ("8000m", 8),
        ("1k", 1000),
        ("1Ki", 1024),
        ("1e3", 1000),
        ("2E", 2 * 10**18),
        (".5", Decimal("0.5")),
    ],
)
def test_numbers(value: Any, number: Any) -> None:
    assert parse(value) == number


@pytest.mark.parametrize("value", ["", "many", "8 ", "1KiB", "--1", True, None, [], {}, "1e9999", "٣"], ids=repr)
def test_what_is_no_quantity(value: Any) -> None:
    assert whole(value) is None


def test_halves_are_not_whole() -> None:
    assert whole("1500m") is None
    assert whole("1500M") == 1_500_000_000


@settings(deadline=None)
@given(st.text() | st.floats() | st.integers())
def test_any_value_is_a_quantity_or_none(value: Any) -> None:
    found = whole(value)
    assert found is None or isinstance(found, int)
