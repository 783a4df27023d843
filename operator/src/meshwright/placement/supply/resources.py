"""Amounts of what nodes have and pods ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from meshwright.placement.supply.quantities import millis, units

GPU: Final = "nvidia.com/gpu"
ONE_EACH: Final = "a node without "
"""How the names of those resources begin of which every node has one, although it does not say so."""
_NAMED: Final = ("cpu", "memory", GPU, "pods")


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of every resource, zero unless given. A difference may be negative: more is used than there is."""

    cpu: int = 0
    """Thousandths of a core."""
    memory: int = 0
    """Bytes."""
    gpus: int = 0
    """`nvidia.com/gpu`."""
    pods: int = 0
    other: tuple[tuple[str, int], ...] = ()
    """Every other resource by name, sorted, without zeros: ephemeral-storage, huge pages, devices."""

    @classmethod
    def parse(cls, quantities: Mapping[str, object]) -> Resources:
        """Reads a map of Kubernetes quantities, such as a node's `allocatable` or a container's `requests`.

        Raises:
            InvalidQuantity: a value is no quantity.
        """
        return cls.of({name: millis(value) if name == "cpu" else units(value) for name, value in quantities.items()})

    @classmethod
    def of(cls, amounts: Mapping[str, int]) -> Resources:
        """From amounts by Kubernetes name, CPU in thousandths; the inverse of `items`."""
        other = {name: amount for name, amount in amounts.items() if name not in _NAMED}
        cpu, memory, gpus, pods = (amounts.get(name, 0) for name in _NAMED)
        return cls(cpu, memory, gpus, pods, _canonical(other))

    def __add__(self, more: Resources) -> Resources:
        return self._combine(more, int.__add__)

    def __sub__(self, less: Resources) -> Resources:
        return self._combine(less, int.__sub__)

    def __mul__(self, count: int) -> Resources:
        other = _canonical({name: amount * count for name, amount in self.other})
        return Resources(self.cpu * count, self.memory * count, self.gpus * count, self.pods * count, other)

    def most(self, than: Resources) -> Resources:
        """Of each resource the greater amount of the two."""
        return self._combine(than, max)

    def items(self) -> Iterator[tuple[str, int]]:
        """Every resource by its Kubernetes name, CPU in thousandths."""
        yield from zip(_NAMED, (self.cpu, self.memory, self.gpus, self.pods), strict=True)
        yield from self.other

    def short_of(self, free: Resources) -> tuple[str, ...]:
        """Names of the resources of which `free` has less than this asks for; what is not asked for is never short."""
        there = dict(free.items())
        return tuple(name for name, amount in self.items() if amount > 0 and amount > _left(name, there))

    def fits(self, free: Resources) -> bool:
        """Whether `free` holds this."""
        return self.times_in(free, 1) == 1

    def times_in(self, free: Resources, most: int) -> int:
        """How often this fits into `free`, up to `most`."""
        # Written out, since this is asked of every node for every gang that waits.
        if self.gpus > 0:
            most = min(most, free.gpus // self.gpus)
        if self.cpu > 0:
            most = min(most, free.cpu // self.cpu)
        if self.memory > 0:
            most = min(most, free.memory // self.memory)
        if self.pods > 0:
            most = min(most, free.pods // self.pods)
        if self.other and most > 0:
            there = dict(free.other)
            most = min([most, *(_left(name, there) // wanted for name, wanted in self.other if wanted > 0)])
        return max(most, 0)

    def _combine(self, that: Resources, how: Callable[[int, int], int]) -> Resources:
        other: tuple[tuple[str, int], ...] = ()
        if self.other or that.other:
            mine, theirs = dict(self.other), dict(that.other)
            every = mine.keys() | theirs.keys()
            other = _canonical({name: how(mine.get(name, 0), theirs.get(name, 0)) for name in every})
        return Resources(
            how(self.cpu, that.cpu),
            how(self.memory, that.memory),
            how(self.gpus, that.gpus),
            how(self.pods, that.pods),
            other,
        )


NOTHING: Final = Resources()


def _left(name: str, free: Mapping[str, int]) -> int:
    return free.get(name, 0) + name.startswith(ONE_EACH)


def _canonical(amounts: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((name, amount) for name, amount in amounts.items() if amount))
