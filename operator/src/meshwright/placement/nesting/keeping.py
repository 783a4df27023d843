"""A gang that is restarted keeps its places: only pods whose nodes are gone or full are placed anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshwright.placement.nesting.cost import Cost, Group
from meshwright.placement.nesting.improving import Together
from meshwright.placement.nesting.layout import Layout, Within
from meshwright.placement.nesting.room import held_axes
from meshwright.placement.nesting.search import Found
from meshwright.placement.topology.tree import Tree


def kept(
    tree: Tree, rooms: Sequence[int], layout: Layout, constraints: Sequence[Within], before: Mapping[int, str]
) -> Found | None:
    """The old places, and for the other pods the cheapest nodes beside them.

    Args:
        tree: the topology.
        rooms: pods that each node has room for, by position.
        layout: the grid.
        constraints: those to keep.
        before: names of the nodes that pods had, by pod.

    Returns:
        None if a constraint would be broken, or a pod finds no node: then the gang is placed anew as a whole.
    """
    position = {node.name: i for i, node in enumerate(tree.nodes)}
    free = list(rooms)
    nodes = [-1] * layout.pods
    for pod, name in before.items():
        node = position.get(name, -1)
        if node >= 0 and free[node] > 0:
            nodes[pod] = node
            free[node] -= 1
    cost = Cost.of(tree, layout)
    mine = cost.by_pod()
    replicas = Together.of(cost, held_axes(tree, [layout.replica])) if layout.replica else Together({})
    for pod in (p for p, node in enumerate(nodes) if node < 0):
        # Groups are priced over the pods that have a place already.
        known = [
            Group(group.axis, tuple(p for p in group.pods if nodes[p] >= 0 or p == pod)) for group in mine.get(pod, ())
        ]
        best: tuple[int, float, int, int] | None = None
        for node in _one_of_each_kind(tree, free):
            crowd = _crowd(tree, layout, replicas, nodes, pod, node)
            nodes[pod] = node
            price = (crowd, cost.of_groups(known, nodes), free[node], node)
            nodes[pod] = -1
            best = price if best is None or price < best else best
        if best is None:
            return None
        nodes[pod] = best[3]
        free[best[3]] -= 1
    if not Together.of(cost, held_axes(tree, constraints)).kept(cost, nodes, range(layout.pods)):
        return None
    return Found(tuple(nodes), cost.total(nodes))


def _crowd(tree: Tree, layout: Layout, replicas: Together, nodes: Sequence[int], pod: int, node: int) -> int:
    """Where replicas are spread: pods of others in the node's domain, or 0 where the pod's own replica is."""
    level = tree.level(layout.spread) if layout.replica else None
    if level is None:
        return 0
    row = tree.domains[level]
    mates = {mate for _, unit in replicas.units.get(pod, ()) for mate in unit}
    if any(nodes[mate] >= 0 and row[nodes[mate]] == row[node] for mate in mates):
        return 0
    return 1 + sum(other >= 0 and row[other] == row[node] for other in nodes)


def _one_of_each_kind(tree: Tree, free: Sequence[int]) -> list[int]:
    """Of the nodes in one lowest domain the fullest that has room: for a pod from elsewhere they are alike."""
    above = tree.domains[-2]
    best: dict[int, int] = {}
    for node, room in enumerate(free):
        if room > 0 and (above[node] not in best or room < free[best[above[node]]]):
            best[above[node]] = node
    return list(best.values())
