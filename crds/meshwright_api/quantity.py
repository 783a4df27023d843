"""Kubernetes quantities, as far as whole things are counted: `8`, `"8"`, `"8000m"`, `"1k"`."""

from __future__ import annotations

import re
from decimal import Decimal

_FORM = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?[0-9]{1,3}))?")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


def parse(value: object) -> Decimal | None:
    """The number that a quantity stands for; None if it is no quantity."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    match = _FORM.fullmatch(str(value))
    if match is None:
        return None
    number, suffix, exponent = match.groups()
    if suffix in _BINARY:
        return Decimal(number) * Decimal(2 ** _BINARY[suffix])
    return Decimal(number).scaleb(int(exponent) if exponent else _DECIMAL.get(suffix, 0))


def whole(value: object) -> int | None:
    """The whole number that a quantity stands for; None if it is no quantity or not whole."""
    number = parse(value)
    return int(number) if number is not None and number == number.to_integral_value() else None
