"""Kubernetes quantities (`500m`, `1.5Gi`, `2e3`) as whole numbers of a unit.

As in Kubernetes a fraction of the unit is rounded up, and a number beyond 64 bits is the greatest one.
"""

from __future__ import annotations

import math
from functools import lru_cache

from meshwright.placement.errors import InvalidQuantity
from meshwright_api import quantity

MAX = 2**63 - 1


def units(value: object) -> int:
    """The quantity in its own unit (bytes, devices).

    Raises:
        InvalidQuantity: it is no quantity.
    """
    return _whole(value, 1)


def millis(value: object) -> int:
    """The quantity in thousandths (millicores).

    Raises:
        InvalidQuantity: it is no quantity.
    """
    return _whole(value, 1000)


def _whole(value: object, factor: int) -> int:
    # The text of a bare number is what the API server would have parsed; a boolean is no number.
    text = str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None
    whole = None if text is None else _parse(text, factor)
    if whole is None:
        raise InvalidQuantity(f"{value!r:.80} is no quantity; write a number with a suffix or none, as in 500m or 16Gi")
    return whole


# A cluster has few distinct quantities, and each is read once per pod.
@lru_cache(maxsize=4096)
def _parse(text: str, factor: int) -> int | None:
    number = quantity.parse(text)
    return None if number is None else max(-MAX, min(MAX, math.ceil(number * factor)))
