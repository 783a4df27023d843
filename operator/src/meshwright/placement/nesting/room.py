"""How many pods every domain can hold when blocks of them must not be torn apart. Exact, since the pods are equal.

`units[level]` pods stay together in one domain of that level. A unit of a level is a multiple of the unit below it, so
counting from the nodes upwards, each domain rounded down to whole units, loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

from meshwright.placement.nesting.layout import Layout, Within
from meshwright.placement.topology.tree import Tree

Limits = Mapping[int, Sequence[int]]
"""By level and domain: pods that may go there at most, in whole units."""


def units(tree: Tree, layout: Layout, constraints: Iterable[Within]) -> tuple[int, ...]:
    """Pods that stay together at each level, with all these constraints kept; their levels must be in the tree."""
    together = held_axes(tree, constraints)
    sizes = []
    for axes in together:
        unit = 1
        for axis in layout.axes:
            unit *= axis.size if axis.name in axes else 1
        sizes.append(unit)
    return tuple(sizes)


def held_axes(tree: Tree, constraints: Iterable[Within]) -> tuple[frozenset[str], ...]:
    """By level: the axes along which pods must not be parted there, since a constraint of this level or a lower one
    says so."""
    held: list[frozenset[str]] = [frozenset()] * len(tree.levels)
    for constraint in constraints:
        deepest = tree.level(constraint.level)
        assert deepest is not None  # the solver refuses unknown levels first
        for level in range(deepest + 1):
            held[level] |= constraint.axes
    return tuple(held)


def usable(
    tree: Tree, rooms: Sequence[int], sizes: Sequence[int], limits: Limits | None = None
) -> tuple[list[int], ...]:
    """By level and domain: pods that it can hold in whole units.

    Args:
        tree: the topology.
        rooms: pods that each node has room for, by position.
        sizes: the units of each level.
        limits: what domains of some levels may hold at most.
    """
    lowest = len(tree.levels) - 1
    rows: list[list[int]] = [[]] * len(tree.levels)
    rows[lowest] = [room - room % sizes[lowest] for room in rooms] if sizes[lowest] > 1 else list(rooms)
    for limited, most in (limits or {}).items():
        # What a domain may hold, none of its parts may exceed; above it the parts add up.
        rows[lowest] = [
            min(room, most[domain]) for room, domain in zip(rows[lowest], tree.domains[limited], strict=True)
        ]
    for level in range(lowest - 1, -1, -1):
        below, unit = rows[level + 1], sizes[level]
        # Children of a domain are neighbours too: where they begin follows from where their first nodes stand.
        firsts = [tree.domains[level + 1][start] for start in tree.starts[level][:-1]] + [len(below)]
        row = [sum(below[first:end]) for first, end in pairwise(firsts)]
        rows[level] = [total - total % unit for total in row] if unit > 1 else row
        for limited, most in (limits or {}).items():
            if level >= limited:
                owners = (tree.domains[limited][start] for start in tree.starts[level][:-1])
                rows[level] = [min(room, most[owner]) for room, owner in zip(rows[level], owners, strict=True)]
    return tuple(rows)
