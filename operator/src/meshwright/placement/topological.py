"""`TopologySolver`: places a gang where its traffic wants it, and says what is missing where it cannot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from meshwright.placement.keeping import kept
from meshwright.placement.layout import Layout, Within
from meshwright.placement.model import GangRequest, Member, Placed, Refused, Snapshot
from meshwright.placement.nodes import NodeCapacity
from meshwright.placement.search import Found, cheapest, fits
from meshwright.placement.shortfall import explain
from meshwright.placement.solver import FirstFit, Kind, kinds_of
from meshwright.placement.topology import Topology, Tree


@dataclass(frozen=True)
class Grid:
    """The part of a gang that has a layout, and the room that its pods find."""

    kind: Kind
    members: tuple[Member, ...]
    """By number of the pod in the grid."""
    layout: Layout
    tree: Tree
    rooms: tuple[int, ...]
    """Pods that each node of the tree has room for."""


class TopologySolver:
    """Nests the blocks of a gang's mesh into the domains of the topology so that the least traffic crosses levels.

    Constraints that are required hold or the gang waits. Preferred ones hold where they can all be had together, in
    their order; the later ones are given up first. At equal cost the tightest domain wins. Pods keep the nodes that
    the gang had before where these still take them and no constraint is broken. Pods beside the grid (another role),
    and gangs without a layout, go by first fit.
    """

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._first_fit = FirstFit()
        self._tree: Tree | None = None
        self._tree_nodes: tuple[NodeCapacity, ...] = ()

    def place(self, gang: GangRequest, snapshot: Snapshot) -> Placed | None:
        """A node for every pod of the gang, or None."""
        if not self.topology.levels or not gang.size or _grid_kind(gang, snapshot) is None:
            required = gang.layout is not None and any(c.required for c in gang.layout.constraints)
            return None if required and self.topology.levels else self._first_fit.place(gang, snapshot)
        nodes = self._place_grid(gang, snapshot)
        if nodes is None:
            return None
        rest = tuple(role for role in gang.roles if role.replicas and (role.role, 0) not in nodes)
        if not rest:
            return Placed(nodes)
        others = replace(gang, roles=rest, layout=None)
        placed = self._first_fit.place(others, _without(snapshot, gang, nodes))
        if placed is None:
            # They need what the grid took: now they choose first.
            placed = self._first_fit.place(others, _without(snapshot, gang, {}))
            nodes = self._place_grid(gang, _without(snapshot, gang, placed.nodes)) if placed else None
        return Placed({**nodes, **placed.nodes}) if placed and nodes else None

    def why_not(self, gang: GangRequest, snapshot: Snapshot) -> Refused:
        """What is missing, level by level."""
        grid = next(self._grids(gang, snapshot), None) if gang.layout and self.topology.levels else None
        base = self._first_fit.why_not(gang, snapshot)
        if grid is None:
            return base
        return explain(grid.tree, grid.rooms, grid.layout, grid.kind, snapshot, base)

    def _place_grid(self, gang: GangRequest, snapshot: Snapshot) -> dict[Member, str] | None:
        """Nodes of the pods in the grid."""
        for grid in self._grids(gang, snapshot):
            found = self._best(gang, grid)
            if found is not None:
                return {m: grid.tree.nodes[n].name for m, n in zip(grid.members, found.nodes, strict=True)}
        return None

    def _grids(self, gang: GangRequest, snapshot: Snapshot) -> Iterator[Grid]:
        """The grid without nodes that are to be avoided, then with them."""
        layout = gang.layout
        kind = _grid_kind(gang, snapshot)
        if layout is None or kind is None:
            return
        tree, free = self._tree_of(snapshot.nodes), snapshot.free_for(gang)
        pods = layout.pods
        for avoid in [gang.avoid, frozenset[str]()] if gang.avoid else [gang.avoid]:
            takers = {node for node in kind.nodes if node not in avoid}
            rooms = tuple(
                kind.resources.times_in(free[node.name], pods) if node.name in takers else 0 for node in tree.nodes
            )
            yield Grid(kind, kind.members, layout, tree, rooms)

    def _tree_of(self, nodes: tuple[NodeCapacity, ...]) -> Tree:
        """The tree of the nodes, which seldom change between two placements."""
        if self._tree is None or nodes != self._tree_nodes:
            self._tree, self._tree_nodes = Tree.of(self.topology, nodes), nodes
        return self._tree

    def _best(self, gang: GangRequest, grid: Grid) -> Found | None:
        """The cheapest place with as many of the preferred constraints as can be had."""
        if any(grid.tree.level(c.level) is None for c in grid.layout.constraints if c.required):
            return None
        before = {i: gang.prefer[m] for i, m in enumerate(grid.members) if m in gang.prefer}
        if before:
            # What is only preferred moves no gang that runs.
            required = tuple(c for c in grid.layout.constraints if c.required)
            found = kept(grid.tree, grid.rooms, grid.layout, required, before)
            if found is not None:
                return found
        for constraints in _wishes(grid.tree, grid.layout.constraints):
            if fits(grid.tree, grid.rooms, grid.layout, constraints):
                return cheapest(grid.tree, grid.rooms, grid.layout, constraints)
        return None


def _grid_kind(gang: GangRequest, snapshot: Snapshot) -> Kind | None:
    """The pods of the gang that its layout is about."""
    pods = gang.layout.pods if gang.layout else -1
    return next((kind for kind in kinds_of(gang, snapshot) if len(kind.members) == pods), None)


def _without(snapshot: Snapshot, gang: GangRequest, taken: Mapping[Member, str]) -> Snapshot:
    """The same moment after some pods of the gang were placed; its old pods give way, so they are left out."""
    free = snapshot.free_for(gang)
    resources = {role.role: role.resources for role in gang.roles}
    for (role, _), node in taken.items():
        free[node] -= resources[role]
    return replace(snapshot, free=free, own={uid: held for uid, held in snapshot.own.items() if uid != gang.job_uid})


def _wishes(tree: Tree, constraints: tuple[Within, ...]) -> Iterator[tuple[Within, ...]]:
    """What to try to keep: all, then without the last of the preferred ones, and so on."""
    required = tuple(c for c in constraints if c.required)
    preferred = tuple(c for c in constraints if not c.required and tree.level(c.level) is not None)
    for count in range(len(preferred), -1, -1):
        yield (*required, *preferred[:count])
