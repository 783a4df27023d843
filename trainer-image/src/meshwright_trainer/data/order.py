"""Which sample comes when: one global order, a pure function of the seed, known at any point without the points before.

A run draws samples 0, 1, 2, ... without end. With one source, samples e * n to (e + 1) * n - 1 are epoch e: a
permutation of its n samples. With several, draws are dealt out to the sources by weight, and each source has epochs of
its own. The only state is how many samples were drawn.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Final

from meshwright_trainer.data.errors import SourceError

MAX_PARTS: Final = 1 << 16
"""Shares of a mixture are multiples of one in so many; weights that need finer ones are rounded."""

_ROUNDS: Final = 8
_MASK: Final = (1 << 64) - 1


class Permutation:
    """A keyed pseudo-random permutation of range(size), evaluated one element at a time, without a table.

    A Feistel network over pairs of digits in base ceil(sqrt(size)), with additions modulo the base in place of XOR
    (Black and Rogaway 2002, "Ciphers with arbitrary finite domains"); results outside the range are sent through again
    ("cycle walking"), which keeps it a permutation and happens to less than 1 in sqrt(size) / 2 elements.
    """

    def __init__(self, key: str, size: int) -> None:
        self.size = size
        self._base = math.isqrt(size - 1) + 1
        digest = hashlib.sha512(key.encode()).digest()
        self._keys = tuple(int.from_bytes(digest[8 * i : 8 * i + 8], "big") for i in range(_ROUNDS))

    def __getitem__(self, position: int) -> int:
        """The element at a position; both are in range(size)."""
        if not 0 <= position < self.size:
            raise IndexError(f"there is no position {position} of {self.size}")
        element = self._once(position)
        while element >= self.size:
            element = self._once(element)
        return element

    def _once(self, value: int) -> int:
        left, right = divmod(value, self._base)
        for key in self._keys:
            left, right = right, (left + _mixed((right + key) & _MASK)) % self._base
        return left * self._base + right


@lru_cache(maxsize=1024)
def global_order(seed: int, epoch: int, size: int, source: int = 0) -> Permutation:
    """The order in which an epoch draws the `size` samples of a source."""
    return Permutation(f"{seed}/{source}/{epoch}", size)


@dataclass(frozen=True, slots=True)
class Place:
    """What a sample id stands for."""

    source: int
    """Number of the source."""
    epoch: int
    """How many times the source was drawn completely before."""
    index: int
    """Index of the sample in its source."""


class Order:
    """The endless sequence of samples of one run.

    The draws of a mixture repeat after `parts` samples: within them source i is drawn parts[i] times, and its j-th draw
    falls between floor(j / share) and ceil((j + 1) / share), earliest deadline first. Such a schedule always exists,
    and it means that at every point each source was drawn share * samples times, less than one draw off (Baruah et al.
    1996, "Proportionate progress").
    """

    def __init__(self, seed: int, lengths: Sequence[int], weights: Sequence[float] = (1.0,)) -> None:
        """Takes the number of samples and the weight of each source.

        Raises:
            SourceError: a source has no sample, or a weight is not positive.
        """
        if any(length < 1 for length in lengths):
            raise SourceError(f"every source needs a sample at least; they have {', '.join(map(str, lengths))}")
        self.seed = seed
        self.lengths = tuple(lengths)
        self.parts = parts_of(weights)
        self._period = sum(self.parts)
        self._draws = _draws(self.parts)

    def __getitem__(self, sample_id: int) -> Place:
        """The place of a sample id, from 0 up."""
        period, slot = divmod(sample_id, self._period)
        source, earlier = self._draws[slot]
        size = self.lengths[source]
        epoch, position = divmod(period * self.parts[source] + earlier, size)
        return Place(source, epoch, global_order(self.seed, epoch, size, source)[position])


def parts_of(weights: Sequence[float]) -> tuple[int, ...]:
    """Weights as the smallest whole numbers of the same proportions; rounded where their sum passes `MAX_PARTS`.

    Raises:
        SourceError: there is no weight, or one is not a positive number.
    """
    if not weights or not all(math.isfinite(weight) and weight > 0 for weight in weights):
        raise SourceError(f"spec.trainer.data.sources: weights are positive numbers, not {list(weights)}")
    # Through the decimal form: 0.1 means a tenth, not the binary fraction next to it.
    exact = [Fraction(str(weight)) for weight in weights]
    scale = math.lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    if sum(whole) > MAX_PARTS * math.gcd(*whole):
        total = sum(whole)
        whole = [max(1, round(Fraction(weight * MAX_PARTS, total))) for weight in whole]
    divisor = math.gcd(*whole)
    return tuple(weight // divisor for weight in whole)


def _draws(parts: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """For each slot of a period the source that is drawn and how often it was drawn before in the period."""
    period = sum(parts)
    waiting = [(0, source, 0) for source in range(len(parts))]
    due: list[tuple[int, int, int]] = []
    draws = []
    for slot in range(period):
        while waiting and waiting[0][0] <= slot:
            _, source, draw = heapq.heappop(waiting)
            heapq.heappush(due, (-(-(draw + 1) * period // parts[source]), source, draw))
        _, source, draw = heapq.heappop(due)
        draws.append((source, draw))
        if draw + 1 < parts[source]:
            heapq.heappush(waiting, ((draw + 1) * period // parts[source], source, draw + 1))
    return tuple(draws)


def _mixed(value: int) -> int:
    """The finaliser of splitmix64 (Steele et al. 2014)."""
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & _MASK
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB & _MASK
    return value ^ (value >> 31)
