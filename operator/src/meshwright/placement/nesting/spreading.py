"""How replicas are dealt out over domains: each whole in one, and as evenly as there is room.

Even means: the fullest domain holds as few as possible, then the next fullest, and so on. Exact.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshwright.placement.nesting.layout import Layout, Within
from meshwright.placement.nesting.room import Limits, units, usable
from meshwright.placement.topology.tree import Tree


def spread_limits(tree: Tree, rooms: Sequence[int], layout: Layout, constraints: Sequence[Within]) -> Limits | None:
    """How many pods each domain of the level gets over which replicas are spread.

    Args:
        tree: the topology.
        rooms: pods that each node has room for, by position.
        layout: the grid; the level that it spreads over is in the tree.
        constraints: those to keep, that of the replicas among them; there is a place that keeps them.

    Returns:
        None if nothing can be spread, since a constraint keeps the whole gang in one of these domains.
    """
    level, sizes = tree.level(layout.spread), units(tree, layout, constraints)
    if level is None or layout.replica is None or sizes[level] == layout.pods:
        return None
    capacity, unit = usable(tree, rooms, sizes), sizes[level]
    # A constraint of a level above that parts less than the gang is about parts of replicas: it holds anyway.
    whole = max((above for above in range(level) if sizes[above] == layout.pods), default=0)
    best: tuple[list[int], int, int] | None = None
    found: Mapping[int, int] = {}
    for home, room in enumerate(capacity[whole]):
        if room < layout.pods:
            continue
        replicas = {domain: capacity[level][domain] // unit for domain in tree.within(whole, home, level)}
        given = evenly(tree, level, replicas, layout.pods // unit)
        key = sorted(given.values(), reverse=True), room, home
        if best is None or key < best:
            best, found = key, given
    return None if best is None else {level: [found.get(d, 0) * unit for d in range(tree.size(level))]}


def evenly(tree: Tree, level: int, rooms: Mapping[int, int], count: int) -> dict[int, int]:
    """How many of `count` things each domain gets.

    Args:
        tree: the topology; of equally full domains those next to each other get one more.
        level: the level of the domains.
        rooms: by domain, how many it can hold.
        count: at most as many as all can hold together.
    """
    most = _least_maximum(list(rooms.values()), count)
    given = {domain: min(room, max(most - 1, 0)) for domain, room in rooms.items()}
    left = count - sum(given.values())
    fuller = _neighbours(tree, level, [domain for domain, room in rooms.items() if room >= most], left)
    return {domain: number + (domain in fuller) for domain, number in given.items()}


def _least_maximum(rooms: Sequence[int], count: int) -> int:
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        if sum(min(room, middle) for room in rooms) >= count:
            high = middle
        else:
            low = middle + 1
    return low


def _neighbours(tree: Tree, level: int, domains: Sequence[int], count: int) -> frozenset[int]:
    """So many of the domains, in one domain of the level above where there is one with enough, else higher up."""
    for above in range(level - 1, -1, -1):
        homes: dict[int, list[int]] = {}
        for domain in domains:
            homes.setdefault(tree.domains[above][tree.starts[level][domain]], []).append(domain)
        enough = [inside for inside in homes.values() if len(inside) >= count]
        if enough:
            return frozenset(min(enough, key=len)[:count])
    return frozenset()
