"""In which order the pods of a grid are laid along the topology: which blocks of pods are kept together first.

An order is a nesting of parts of axes, outermost first. The heaviest traffic belongs innermost; but where two axes send
about as much, tiles (half of one axis beside half of another) can beat rows, so parts may alternate.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from meshwright.placement.nesting.layout import Layout


@dataclass(frozen=True, slots=True)
class Order:
    """A sequence of all pods, and the sizes of the blocks that it nests, largest first, down to single pods."""

    pods: tuple[int, ...]
    blocks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Part:
    axis: int
    size: int
    stride: int
    """Between the pods along this part, in pod numbers."""


def orders(layout: Layout, held: Sequence[frozenset[str]], limit: int) -> list[Order]:
    """The orders to try, most promising first.

    Args:
        layout: the grid.
        held: by level, the axes that must not be parted there; what is held deepest is always innermost.
        limit: how many orders at most.
    """
    depth = [sum(axis.name in axes for axes in held) for axis in layout.axes]
    found: dict[tuple[_Part, ...], Order] = {}
    for parts in islice(_nestings(layout, depth), 4 * limit):
        if len(found) == limit:
            break
        found.setdefault(parts, _order(parts))
    return list(found.values())


def _nestings(layout: Layout, depth: Sequence[int]) -> Iterator[tuple[_Part, ...]]:
    """By weight first, then every merging of the axes' parts that keeps held axes innermost."""
    parts = _parts(layout)
    axes = [i for i in range(len(layout.axes)) if parts[i]]

    # To cut a group in two costs one crossing, whatever its pattern; so traffic decides, and at a draw rank order.
    def heaviness(axis: int) -> tuple[int, float, int]:
        return depth[axis], layout.axes[axis].traffic, axis

    by_weight = sorted(axes, key=heaviness)
    yield tuple(part for axis in by_weight for part in parts[axis])
    yield from _merged(by_weight, parts, depth)


def _merged(axes: list[int], parts: dict[int, list[_Part]], depth: Sequence[int]) -> Iterator[tuple[_Part, ...]]:
    """Merges the parts of axes of equal depth in every way; an axis' own parts keep their order."""
    layers = [[axis for axis in axes if depth[axis] == d] for d in sorted({depth[axis] for axis in axes})]

    def merge(left: dict[int, int]) -> Iterator[tuple[_Part, ...]]:
        if not any(left.values()):
            yield ()
            return
        for axis, count in left.items():
            if count:
                head = parts[axis][len(parts[axis]) - count]
                for rest in merge({**left, axis: count - 1}):
                    yield (head, *rest)

    for merged in product(*(list(islice(merge({a: len(parts[a]) for a in layer}), 200)) for layer in layers)):
        yield tuple(part for layer in merged for part in layer)


def _parts(layout: Layout) -> dict[int, list[_Part]]:
    """The prime parts of every axis, outermost first."""
    parts: dict[int, list[_Part]] = {}
    stride = 1
    for i in range(len(layout.axes) - 1, -1, -1):
        parts[i] = []
        for factor in _primes(layout.axes[i].size):
            parts[i].insert(0, _Part(i, factor, stride))
            stride *= factor
    return parts


def _primes(number: int) -> Iterator[int]:
    factor = 2
    while factor * factor <= number:
        while number % factor == 0:
            yield factor
            number //= factor
        factor += 1
    if number > 1:
        yield number


def _order(parts: tuple[_Part, ...]) -> Order:
    pods = [0]
    for part in parts:
        steps = range(0, part.size * part.stride, part.stride)
        pods = [pod + step for pod in pods for step in steps]
    blocks, size = [1], 1
    for part in reversed(parts):
        size *= part.size
        blocks.append(size)
    return Order(tuple(pods), tuple(reversed(blocks)))
