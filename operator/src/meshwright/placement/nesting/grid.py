"""The part of a gang that its layout is about, and the room that its pods find in the tree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from meshwright.placement.model import GangRequest, Member, Snapshot
from meshwright.placement.nesting.layout import Layout
from meshwright.placement.solver import Kind, kinds_of
from meshwright.placement.topology.tree import Tree


@dataclass(frozen=True)
class Grid:
    """Equal pods that want something of the topology."""

    kind: Kind
    members: tuple[Member, ...]
    """By number of the pod in the grid."""
    layout: Layout
    tree: Tree
    rooms: tuple[int, ...]
    """Pods that each node of the tree has room for."""


def grid_kind(gang: GangRequest, snapshot: Snapshot) -> Kind | None:
    """The pods that the layout is about: as many as it has, and where that is said of several, those with GPUs."""
    pods = gang.layout.pods if gang.layout else -1
    found = [kind for kind in kinds_of(gang, snapshot) if len(kind.members) == pods]
    return max(found, key=lambda kind: kind.resources.gpus, default=None)


def grids(gang: GangRequest, snapshot: Snapshot, tree: Tree, kind: Kind | None = None) -> Iterator[Grid]:
    """The grid without nodes that are to be avoided, then with them; `kind` if it is known already."""
    layout, kind = gang.layout, kind or grid_kind(gang, snapshot)
    if layout is None or kind is None:
        return
    free, times_in, pods = snapshot.free_for(gang), kind.resources.times_in, layout.pods
    for avoid in [gang.avoid, frozenset[str]()] if gang.avoid else [gang.avoid]:
        takers = {node for node in kind.nodes if node not in avoid}
        rooms = tuple([times_in(free[node.name], pods) if node.name in takers else 0 for node in tree.nodes])
        yield Grid(kind, kind.members, layout, tree, rooms)
