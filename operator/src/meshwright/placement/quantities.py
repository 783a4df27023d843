"""Kubernetes quantities (`500m`, `1.5Gi`, `2e3`) as whole numbers of a unit.

As in Kubernetes a fraction of the unit is rounded up, and a number beyond 64 bits is the greatest one.
"""

from __future__ import annotations

import math
from functools import lru_cache

from meshwright_api import quantity

from meshwright.placement.errors import InvalidQuantity

MAX = 2**63 - 1


def units(value: object) -> int:
    """The quantity in its own unit (bytes, devices).

    Raises:
        InvalidQuantity: it is no quantity.
    """
    return _scaled(value, 1)


def millis(value: object) -> int:
    """The quantity in thousandths (millicores).

    Raises:
        InvalidQuantity: it is no quantity.
    """
    return _scaled(value, 1000)


# A cluster has few distinct quantities, and each is read once per pod. `typed` keeps True and 1 apart.
@lru_cache(maxsize=4096, typed=True)
def _scaled(value: object, factor: int) -> int:
    number = quantity.parse(value)
    if number is None:
        raise InvalidQuantity(f"{value!r:.80} is no quantity; write a number with an optional suffix, such as 500m or 16Gi")
    return max(-MAX, min(MAX, math.ceil(number * factor)))
