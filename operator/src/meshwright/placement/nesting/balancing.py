"""Gangs in equal parts: at every level every domain that is used holds the same number of pods.

A chain says how many that is at each level: all pods, so many in each spine, so many in each leaf, so many on each
node, each a multiple of the next. Going up from the nodes, whether a domain can take its share is a matter of counting.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from meshwright.placement.nesting.cost import Cost
from meshwright.placement.nesting.layout import Layout, Within
from meshwright.placement.nesting.orders import orders
from meshwright.placement.nesting.room import held_axes, units
from meshwright.placement.nesting.search import Found
from meshwright.placement.topology.tree import Tree

_CHAINS = 4
_ORDERS = 4


@dataclass(frozen=True)
class _Chain:
    sizes: tuple[int, ...]
    """By level: pods in each domain that is used."""
    able: tuple[Sequence[bool], ...]
    """By level and domain: whether it can take that many."""


def balanced(tree: Tree, rooms: Sequence[int], layout: Layout, constraints: Sequence[Within]) -> Found | None:
    """The cheapest place found in equal parts; None if there is none. Whether there is one is exact.

    Where replicas are spread, the fewest pods to a domain come first; else the fewest domains.

    Args:
        tree: the topology.
        rooms: pods that each node has room for, by position.
        layout: the grid.
        constraints: those to keep; their levels are in the tree.
    """
    chains = list(_chains(tree, rooms, layout.pods, units(tree, layout, constraints))) if tree.nodes else []
    if not chains:
        return None
    if layout.replica is not None and (level := tree.level(layout.spread)) is not None:
        least = min(chain.sizes[level] for chain in chains)
        chains = [chain for chain in chains if chain.sizes[level] == least]
    chains.sort(key=lambda chain: [-size for size in chain.sizes])
    ways = orders(layout, held_axes(tree, constraints), limit=_ORDERS)
    cost = Cost.of(tree, layout)
    found = [_dealt(tree, rooms, chain, way.pods) for chain in chains[:_CHAINS] for way in ways]
    best = min(found, key=cost.total)
    return Found(tuple(best), cost.total(best))


def _chains(tree: Tree, rooms: Sequence[int], pods: int, sizes: Sequence[int]) -> Iterator[_Chain]:
    """Every chain that has a place."""
    divisors = [n for n in range(1, pods + 1) if pods % n == 0]

    def above(level: int, chain: _Chain) -> Iterator[_Chain]:
        if level < 0:
            yield chain
            return
        share, able = chain.sizes[0], chain.able[0]
        counts = [sum(able[child] for child in tree.children(level, d)) for d in range(tree.size(level))]
        for size in divisors if level else [pods]:
            if size % share == 0 and size % sizes[level] == 0:
                row = [count * share >= size for count in counts]
                if sum(row) * size >= pods:
                    yield from above(level - 1, _Chain((size, *chain.sizes), (row, *chain.able)))

    lowest = len(tree.levels) - 1
    for size in divisors:
        if size % sizes[lowest] == 0:
            row = [room >= size for room in rooms]
            if sum(row) * size >= pods:
                yield from above(lowest - 1, _Chain((size,), (row,)))


def _dealt(tree: Tree, rooms: Sequence[int], chain: _Chain, order: Sequence[int]) -> list[int]:
    """The node's position for every pod: consecutive runs of the order go to one domain each, the tightest first."""
    nodes = [-1] * len(order)

    def deal(level: int, domain: int, pods: Sequence[int]) -> None:
        if level == len(tree.levels) - 1:
            for pod in pods:
                nodes[pod] = domain
            return
        share = chain.sizes[level + 1]
        able = [child for child in tree.children(level, domain) if chain.able[level + 1][child]]
        able.sort(key=lambda child: sum(rooms[node] for node in tree.span(level + 1, child)))
        for start, child in zip(range(0, len(pods), share), able, strict=False):
            deal(level + 1, child, pods[start : start + share])

    deal(0, 0, order)
    return nodes
