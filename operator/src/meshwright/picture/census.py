"""Counts what is free in every domain of the cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from meshwright.picture.model import Domain, Gpus
from meshwright.placement.model import Snapshot
from meshwright.placement.supply.eligibility import Obstacle
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.topology.tree import Tree


@dataclass(frozen=True, slots=True)
class Seat:
    """What the drawn job has on one node."""

    pods: int
    gpus: int
    ranks: tuple[int, ...]
    holds: bool
    """Whether it is taken already, and not only planned."""


def census(tree: Tree, snapshot: Snapshot, seats: Mapping[str, Seat]) -> Domain:
    """The whole cluster, with all domains down to the nodes.

    Args:
        tree: the topology; nodes outside of it are not counted.
        snapshot: what is free.
        seats: of the drawn job, by node.
    """
    return _domain(tree, snapshot, seats, 0, 0) if tree.nodes else Domain("cluster", "cluster", 0, Gpus())


def _domain(tree: Tree, snapshot: Snapshot, seats: Mapping[str, Seat], level: int, number: int) -> Domain:
    if level == len(tree.levels) - 1:
        node = tree.nodes[number]
        return _node(tree.levels[level].name, node, snapshot, seats.get(node.name))
    children = tuple(_domain(tree, snapshot, seats, level + 1, child) for child in tree.children(level, number))
    return summed(tree.levels[level].name, tree.path(level, number).rpartition("/")[2] or "cluster", children)


def summed(level: str, name: str, children: tuple[Domain, ...]) -> Domain:
    """A domain that consists of others."""
    return Domain(
        level=level,
        name=name,
        nodes=sum(child.nodes for child in children),
        gpus=sum((child.gpus for child in children), Gpus()),
        pods=sum(child.pods for child in children),
        ranks=tuple(sorted(rank for child in children for rank in child.ranks)),
        children=children,
    )


def _node(level: str, node: NodeCapacity, snapshot: Snapshot, seat: Seat | None) -> Domain:
    note = ""
    if not node.ready:
        note = str(Obstacle.NOT_READY)
    elif node.unschedulable:
        note = str(Obstacle.CORDONED)
    total = node.allocatable.gpus
    idle = min(max(snapshot.free[node.name].gpus, 0), total)
    mine = min(seat.gpus, total) if seat else 0
    if seat and not seat.holds:
        idle = max(idle - mine, 0)
    gpus = Gpus(free=0 if note else idle, closed=idle if note else 0, busy=max(total - idle - mine, 0), job=mine)
    return Domain(
        level=level,
        name=node.name,
        nodes=1,
        gpus=gpus,
        pods=seat.pods if seat else 0,
        ranks=seat.ranks if seat else (),
        note=note,
        is_node=True,
    )
