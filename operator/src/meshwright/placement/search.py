"""The search for the cheapest place of a grid of pods: several domains and orders are packed, the best are improved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from meshwright.placement.cost import Cost
from meshwright.placement.improving import Improving, Together
from meshwright.placement.layout import Layout, Within
from meshwright.placement.orders import Order, orders
from meshwright.placement.packing import Packing
from meshwright.placement.room import held_axes, units, usable
from meshwright.placement.topology import Tree

_PLACINGS: Final = 3000
"""Pods that are placed in all tries together. Small gangs are tried in many ways, large ones in a few."""
_DOMAINS: Final = 4
"""Domains of each level that are tried."""
_IMPROVED: Final = 64
"""Gangs of more pods are not improved by small changes."""
_LOOKS: Final = 4000
"""Small changes that are looked at in all tries together."""


@dataclass(frozen=True, slots=True)
class Found:
    """A place."""

    nodes: tuple[int, ...]
    """The node's position in the tree for every pod."""
    cost: float


@dataclass(frozen=True, slots=True)
class _Try:
    cost: float
    rank: int
    """Earlier tries are in deeper and tighter domains, so they win ties."""
    order: Order
    nodes: list[int]


def fits(tree: Tree, rooms: Sequence[int], layout: Layout, constraints: Sequence[Within]) -> bool:
    """Whether there is a place that keeps all constraints. Exact."""
    return bool(tree.nodes) and usable(tree, rooms, units(tree, layout, constraints))[0][0] >= layout.pods


def cheapest(tree: Tree, rooms: Sequence[int], layout: Layout, constraints: Sequence[Within]) -> Found | None:
    """The cheapest place found; None if there is none that keeps all constraints.

    Args:
        tree: the topology.
        rooms: pods that each node has room for, by position.
        layout: the grid.
        constraints: those to keep.
    """
    sizes = units(tree, layout, constraints)
    capacity = usable(tree, rooms, sizes)
    if not tree.nodes or capacity[0][0] < layout.pods:
        return None
    held = held_axes(tree, constraints)
    cost = Cost.of(tree, layout)
    tries = _tries(tree, capacity, sizes, layout, held, cost)
    tries.sort(key=lambda t: (t.cost, t.rank))
    if layout.pods <= _IMPROVED and tries[0].cost > 0:
        tries = _improve(tries, rooms, held, cost)
    best = min(tries, key=lambda t: (t.cost, t.rank))
    return Found(tuple(best.nodes), best.cost)


def _tries(
    tree: Tree,
    capacity: Sequence[Sequence[int]],
    sizes: Sequence[int],
    layout: Layout,
    held: Sequence[frozenset[str]],
    cost: Cost,
) -> list[_Try]:
    budget = max(1, _PLACINGS // layout.pods)
    ways = orders(layout, held, limit=min(budget, 24))
    found: list[_Try] = []
    seen: set[tuple[int, ...]] = set()
    for level, domain in _homes(tree, capacity, layout.pods):
        for order in ways:
            if len(found) >= budget:
                return found
            nodes = Packing(tree, capacity, sizes, order).into(level, domain)
            if tuple(nodes) not in seen:
                seen.add(tuple(nodes))
                found.append(_Try(cost.total(nodes) if budget > 1 else 1.0, len(found), order, nodes))
    return found


def _homes(tree: Tree, capacity: Sequence[Sequence[int]], pods: int) -> Iterator[tuple[int, int]]:
    """Domains that hold the whole gang: the deepest first, and of each level the tightest."""
    for level in range(len(tree.levels) - 1, -1, -1):
        fitting = [(room, domain) for domain, room in enumerate(capacity[level]) if room >= pods]
        for _, domain in sorted(fitting)[:_DOMAINS]:
            yield level, domain


def _improve(tries: list[_Try], rooms: Sequence[int], held: Sequence[frozenset[str]], cost: Cost) -> list[_Try]:
    """Improves the best few."""
    together = Together.of(cost, held)
    best = tries[:3]
    better = []
    for each in best:
        improving = Improving(cost, together, rooms, _LOOKS // len(best))
        nodes = improving.improve(list(each.nodes), _blocks(each.order))
        better.append(_Try(cost.total(nodes), each.rank, each.order, nodes))
    return better


def _blocks(order: Order) -> list[tuple[int, ...]]:
    pods = order.pods
    return [pods[i : i + size] for size in order.blocks[1:] for i in range(0, len(pods), size)]
