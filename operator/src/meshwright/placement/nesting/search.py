"""The search for the cheapest place of a grid of pods: several domains and orders are packed, the best are improved."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Final

from meshwright.placement.nesting.cost import Cost
from meshwright.placement.nesting.improving import Improving, Together
from meshwright.placement.nesting.layout import Layout, Within
from meshwright.placement.nesting.orders import Order, orders
from meshwright.placement.nesting.packing import Packing
from meshwright.placement.nesting.room import Limits, held_axes, units, usable
from meshwright.placement.topology.tree import Tree

_DOMAINS: Final = 4
"""Domains of each level that are tried."""
_IMPROVED: Final = 64
"""Gangs of more pods are not improved by small changes."""


@dataclass(frozen=True, slots=True)
class _Effort:
    """How much is tried: fixed numbers, no clock, so that equal input gives equal output."""

    wishes: bool
    """Whether constraints that nobody asked for are tried as well."""
    placings: int
    """Pods that are placed in all tries together: small gangs are tried in many ways, large ones in a few."""
    best: int
    """Placements that are improved."""
    looks: int
    """Pods in the small changes that are looked at, for each of those."""

    @classmethod
    def of(cls, tree: Tree, layout: Layout) -> _Effort:
        """Much where it costs little."""
        small = len(tree.nodes) * layout.pods <= 1000
        return cls(True, 1500, 4, 2000) if small else cls(False, 256, 1, 300)


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


def cheapest(
    tree: Tree, rooms: Sequence[int], layout: Layout, constraints: Sequence[Within], limits: Limits | None = None
) -> Found | None:
    """The cheapest place found; None if there is none that keeps all constraints.

    Args:
        tree: the topology.
        rooms: pods that each node has room for, by position.
        layout: the grid.
        constraints: those to keep.
        limits: what domains may hold at most.
    """
    capacity = usable(tree, rooms, units(tree, layout, constraints), limits)
    if not tree.nodes or capacity[0][0] < layout.pods:
        return None
    cost = Cost.of(tree, layout)
    floor = cost.at_least(capacity) * (1 + 1e-9)
    tries: list[_Try] = []
    effort = _Effort.of(tree, layout)
    for wished in _wished(tree, layout, constraints) if effort.wishes else [constraints]:
        tries += _tries(tree, rooms, layout, wished, limits, cost, floor, max(1, effort.placings // layout.pods))
        if any(t.cost <= floor for t in tries):
            break
    if layout.pods > _IMPROVED and not constraints and not limits:
        tries += _filled(tree, rooms, capacity, layout, cost, len(tries))
    tries.sort(key=lambda t: (t.cost, t.rank))
    # Small changes know nothing of limits.
    if layout.pods <= _IMPROVED and tries[0].cost > floor and not limits:
        tries = _improve(tries, rooms, held_axes(tree, constraints), cost, effort)
    best = min(tries, key=lambda t: (t.cost, t.rank))
    return Found(tuple(best.nodes), best.cost)


def _wished(tree: Tree, layout: Layout, constraints: Sequence[Within]) -> Iterator[tuple[Within, ...]]:
    """The constraints, and then some that nobody asked for: the heaviest axes kept together in turn at every level.

    Packing takes the fewest domains that hold the gang, which may part heavy groups that whole would fit elsewhere.
    """
    yield tuple(constraints)
    by_weight = [axis.name for axis in sorted(layout.axes, key=lambda a: -a.traffic) if axis.size > 1]
    for count in range(1, len(by_weight)):
        for level in tree.levels[1:]:
            yield (*constraints, Within(frozenset(by_weight[:count]), level.name))


def _tries(
    tree: Tree,
    rooms: Sequence[int],
    layout: Layout,
    constraints: Sequence[Within],
    limits: Limits | None,
    cost: Cost,
    floor: float,
    budget: int,
) -> list[_Try]:
    """Places in several domains and orders, none after one that cannot be undercut."""
    sizes = units(tree, layout, constraints)
    capacity = usable(tree, rooms, sizes, limits)
    pods = layout.pods
    ways = orders(layout, held_axes(tree, constraints), limit=min(budget, 12))
    # Blocks may also be ignored, to fill the largest domain to its brim: with one pod left over that can be cheapest.
    # Along one axis alone they mean nothing, so there it comes first.
    brim = [Order(way.pods, tuple(b for b in way.blocks if b in (pods, 1, *sizes))) for way in ways]
    ways = [*ways, *brim] if sum(axis.size > 1 for axis in layout.axes) > 1 else [*brim, *ways]
    found: list[_Try] = []
    seen: set[tuple[int, ...]] = set()
    for level, domain in _homes(tree, capacity, pods):
        for order, best_fit in product(ways, (False, True)):
            if len(found) >= budget:
                return found
            nodes = Packing(tree, capacity, sizes, order, best_fit=best_fit).into(level, domain)
            if tuple(nodes) not in seen:
                seen.add(tuple(nodes))
                found.append(_Try(cost.total(nodes), len(found), order, nodes))
                if found[-1].cost <= floor:
                    return found
    return found


def _filled(
    tree: Tree, rooms: Sequence[int], capacity: Sequence[Sequence[int]], layout: Layout, cost: Cost, rank: int
) -> Iterator[_Try]:
    """Places node by node in the order of the tree: everywhere, and in the tightest domain that holds the gang.

    Large gangs are packed in one way only; where their blocks fit nowhere whole, plain filling parts them less.
    """
    order = orders(layout, (), limit=1)[0]
    level, domain = next(_homes(tree, capacity, layout.pods))
    spans = {range(len(tree.nodes)), tree.span(level, domain)}
    for span in sorted(spans, key=len):
        nodes = list(islice((node for node in span for _ in range(rooms[node])), layout.pods))
        if len(nodes) == layout.pods:
            by_blocks = [node for _, node in sorted(zip(order.pods, nodes, strict=True))]
            for placed in (nodes, by_blocks):
                yield _Try(cost.total(placed), rank, order, placed)


def _homes(tree: Tree, capacity: Sequence[Sequence[int]], pods: int) -> Iterator[tuple[int, int]]:
    """Domains that hold the whole gang: the deepest first, and of each level the tightest."""
    for level in range(len(tree.levels) - 1, -1, -1):
        fitting = [(room, domain) for domain, room in enumerate(capacity[level]) if room >= pods]
        for _, domain in sorted(fitting)[:_DOMAINS]:
            yield level, domain


def _improve(
    tries: list[_Try], rooms: Sequence[int], held: Sequence[frozenset[str]], cost: Cost, effort: _Effort
) -> list[_Try]:
    """Improves the best few."""
    together = Together.of(cost, held)
    better = []
    for each in tries[: effort.best]:
        improving = Improving(cost, together, rooms, effort.looks)
        nodes = improving.improve(list(each.nodes), _blocks(each.order))
        better.append(_Try(cost.total(nodes), each.rank, each.order, nodes))
    return better


def _blocks(order: Order) -> list[tuple[int, ...]]:
    pods = order.pods
    return [pods[i : i + size] for size in order.blocks[1:] for i in range(0, len(pods), size)]
