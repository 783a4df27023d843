"""Kubernetes quantities (`500m`, `4Gi`, `1e3`) as exact numbers."""

from __future__ import annotations

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache
from typing import Final

_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50, "Ei": 2**60}
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}


@lru_cache(maxsize=4096)
def parse_quantity(text: str) -> Decimal:
    """The number that a quantity stands for.

    Raises:
        ValueError: It is not a quantity.
    """
    text = str(text).strip()
    try:
        if text[-2:] in _BINARY:
            return Decimal(text[:-2]) * _BINARY[text[-2:]]
        if text[-1:] in _DECIMAL and not text[-1:].isdigit():
            return Decimal(text[:-1]).scaleb(_DECIMAL[text[-1:]])
        return Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a quantity") from None


def divided(quantity: str, divisor: str) -> str:
    """What a `resourceFieldRef` shows: the quantity in units of the divisor (`0` means 1), rounded up."""
    unit = parse_quantity(divisor) or Decimal(1)
    return str(int((parse_quantity(quantity) / unit).to_integral_value(ROUND_CEILING)))
