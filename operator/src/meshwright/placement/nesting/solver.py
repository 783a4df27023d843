"""`TopologySolver`: places a gang where its traffic wants it, and says what is missing where it cannot."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from meshwright.placement.model import GangRequest, Member, Placed, Refused, RoleRequest, Snapshot
from meshwright.placement.nesting.balancing import balanced
from meshwright.placement.nesting.beside import in_order, place_role
from meshwright.placement.nesting.cost import Cost
from meshwright.placement.nesting.exclusivity import closed_nodes
from meshwright.placement.nesting.grid import Grid, grid_kind, grids
from meshwright.placement.nesting.improving import Together
from meshwright.placement.nesting.keeping import kept
from meshwright.placement.nesting.layout import Layout, Within
from meshwright.placement.nesting.room import held_axes, units, usable
from meshwright.placement.nesting.search import Found, cheapest, fits
from meshwright.placement.nesting.seating import Seating
from meshwright.placement.nesting.shortfall import explain, missing_levels, no_such_levels
from meshwright.placement.nesting.spreading import spread_limits
from meshwright.placement.solver import FirstFit, Kind
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.resources import NOTHING
from meshwright.placement.topology.tree import Topology, Tree
from meshwright_api import names

_HOMES = 8
"""Domains that are tried for a gang of unlike pods that must all be in one."""


class TopologySolver:
    """Nests the blocks of a gang's mesh into the domains of the topology so that the least traffic crosses levels.

    Constraints that are required hold or the gang waits. Preferred ones hold where they can all be had together, in
    their order; the later ones are given up first. At equal cost the tightest domain wins. Pods keep the nodes that
    the gang had before where these still take them and no constraint is broken. Pods beside the grid (another role)
    go near the role that they name, over the domains that they name, else by first fit; so do gangs without a layout.

    Without levels every gang goes by first fit, and one that demands a level waits.
    """

    def __init__(self, topology: Topology) -> None:
        """Begins with these levels.

        Attributes:
            topology: The levels; they may be replaced at any time.
            problem: Why there are none, if there should be some; for waiting jobs.
        """
        self.topology = topology
        self.problem = ""
        self._first_fit = FirstFit()
        self._tree: Tree | None = None
        self._tree_nodes: tuple[NodeCapacity, ...] = ()
        self._tree_topology = topology
        self._inside: tuple[Snapshot, Snapshot] | None = None

    def place(self, gang: GangRequest, snapshot: Snapshot) -> Placed | None:
        """A node for every pod of the gang, or None."""
        if not self._by_topology(gang) and not snapshot.exclusive:
            return self._first_fit.place(gang, snapshot)
        tree = self._tree_of(snapshot.nodes)
        if missing_levels(tree, gang):
            return None
        snapshot = _open_to(tree, gang, snapshot)
        kind = grid_kind(gang, snapshot)
        if not self._by_topology(gang) or kind is None or gang.layout is None:
            return None if _demands(gang) else self._first_fit.place(gang, snapshot)
        rest = tuple(role for role in gang.roles if role.replicas and (role.role, 0) not in kind.members)
        if not rest:
            nodes = self._place_grid(gang, snapshot, tree, kind)
        else:
            parts = self._parts(gang, gang.layout, snapshot, tree)
            placings = (self._place_all(gang, part, tree, rest) for part in parts)
            nodes = next((found for found in placings if found is not None), None)
        return Placed(nodes, self._seating(gang, snapshot, tree, kind, nodes)) if nodes is not None else None

    def why_not(self, gang: GangRequest, snapshot: Snapshot) -> Refused:
        """What is missing, level by level."""
        base = self._first_fit.why_not(gang, snapshot)
        if not self._by_topology(gang) and not snapshot.exclusive:
            return base
        tree = self._tree_of(snapshot.nodes)
        opened = _open_to(tree, gang, snapshot)
        base = self._first_fit.why_not(gang, opened)
        grid = next(grids(gang, opened, tree), None) if self._by_topology(gang) else None
        closed = sum(opened.free[node.name] is not snapshot.free[node.name] for node in snapshot.nodes)
        if missing := missing_levels(tree, gang):
            return Refused(names.REASON_WAITING_FOR_CAPACITY, no_such_levels(tree, missing, self.problem))
        if grid is not None and tree.unlabelled:
            base = self._within(tree, grid, gang, opened, base)
        return explain(tree, grid, opened, base, closed, gang.size)

    def _within(self, tree: Tree, grid: Grid, gang: GangRequest, snapshot: Snapshot, base: Refused) -> Refused:
        """What is missing for the grid among the nodes that stand in the topology; `base` if it is nothing."""
        if not tree.nodes:
            message = "no node has the labels of the cluster's topology"
            return Refused(names.REASON_WAITING_FOR_CAPACITY, message)
        if sum(grid.rooms) >= grid.layout.pods:
            return base
        in_grid = {role for role, _ in grid.members}
        roles = tuple(role for role in gang.roles if role.role in in_grid)
        if self._inside is None or self._inside[0] is not snapshot or self._inside[1].nodes is not tree.nodes:
            # Made once for all gangs that wait: what was counted in it is kept in it.
            self._inside = snapshot, replace(snapshot, nodes=tree.nodes, _verdicts={})
        return self._first_fit.why_not(replace(gang, roles=roles), self._inside[1])

    def _by_topology(self, gang: GangRequest) -> bool:
        return bool(gang.size and gang.layout) and (bool(self.topology.levels) or _demands(gang))

    def _parts(self, gang: GangRequest, layout: Layout, snapshot: Snapshot, tree: Tree) -> Iterator[Snapshot]:
        """Where a gang of unlike pods may be: everywhere, or, if all of it must be in one domain, in each in turn."""
        axes = {axis.name for axis in layout.axes}
        level = max((tree.level(c.level) or 0 for c in layout.required if c.axes == axes), default=0)
        grid = next(grids(replace(gang, avoid=frozenset()), snapshot, tree), None)
        if not level or grid is None:
            yield snapshot
            return
        sizes = units(tree, layout, layout.required)
        room = usable(tree, grid.rooms, sizes)[level]
        fitting = sorted((size, domain) for domain, size in enumerate(room) if size >= layout.pods)
        for _, domain in fitting[:_HOMES]:
            inside = {tree.nodes[node].name for node in tree.span(level, domain)}
            yield snapshot.holding(snapshot.held | {node.name for node in snapshot.nodes if node.name not in inside})

    def _place_all(
        self, gang: GangRequest, snapshot: Snapshot, tree: Tree, rest: tuple[RoleRequest, ...]
    ) -> dict[Member, str] | None:
        """Nodes of the grid, then of the pods beside it; the other way round if those need what the grid took."""
        nodes = self._place_grid(gang, snapshot, tree)
        if nodes is None:
            return None
        beside = self._place_rest(gang, snapshot, tree, rest, nodes)
        if beside is None:
            beside = self._place_rest(gang, snapshot, tree, rest, {})
            nodes = self._place_grid(gang, _without(snapshot, gang, beside), tree) if beside else None
        return {**nodes, **beside} if beside and nodes else None

    def _place_rest(
        self,
        gang: GangRequest,
        snapshot: Snapshot,
        tree: Tree,
        rest: tuple[RoleRequest, ...],
        there: Mapping[Member, str],
    ) -> dict[Member, str] | None:
        nodes = dict(there)
        wishful = in_order(rest, {role for role, _ in there})
        for role in wishful:
            free = _without(snapshot, gang, nodes).free
            found = place_role(gang, role, snapshot, free, tree, nodes)
            if found is None:
                return None
            nodes |= found
        others = tuple(role for role in rest if role not in wishful)
        if others:
            plain = replace(gang, roles=others, layout=None)
            placed = self._first_fit.place(plain, _without(snapshot, gang, nodes))
            if placed is None:
                return None
            nodes |= placed.nodes
        return {member: node for member, node in nodes.items() if member not in there}

    def _place_grid(
        self, gang: GangRequest, snapshot: Snapshot, tree: Tree, kind: Kind | None = None
    ) -> dict[Member, str] | None:
        """Nodes of the pods in the grid."""
        for grid in grids(gang, snapshot, tree, kind):
            found = _best(gang, grid)
            if found is not None:
                return {m: grid.tree.nodes[n].name for m, n in zip(grid.members, found.nodes, strict=True)}
        return None

    def _tree_of(self, nodes: tuple[NodeCapacity, ...]) -> Tree:
        """The tree of the nodes, which seldom change between two placements."""
        if self._tree is None or nodes != self._tree_nodes or self.topology is not self._tree_topology:
            self._tree, self._tree_nodes = Tree.of(self.topology, nodes), nodes
            self._tree_topology = self.topology
        return self._tree

    def _seating(
        self, gang: GangRequest, snapshot: Snapshot, tree: Tree, kind: Kind, nodes: Mapping[Member, str]
    ) -> Seating:
        known = {member: tree.position[name] for member, name in nodes.items() if name in tree.position}

        def naive() -> Mapping[Member, str] | None:
            """First fit among the same nodes, as if the gang had never run."""
            inside = replace(snapshot, nodes=tree.nodes, _verdicts={})
            placed = self._first_fit.place(replace(gang, prefer={}), inside)
            return placed.nodes if placed else None

        return Seating(tree, known, kind.members, gang.layout, naive)


def lost_wishes(seating: Seating) -> tuple[Within, ...]:
    """The preferred constraints that a placed gang does not have."""
    tree, layout = seating.tree, seating.layout
    preferred = [c for c in layout.constraints if not c.required] if layout else []
    if layout is None or not preferred:
        return ()
    cost, where = Cost.of(tree, layout), [seating.nodes[member] for member in seating.grid]

    def holds(constraint: Within) -> bool:
        together = Together.of(cost, held_axes(tree, [constraint]))
        return together.kept(cost, where, range(layout.pods))

    return tuple(c for c in preferred if tree.level(c.level) is None or not holds(c))


def _best(gang: GangRequest, grid: Grid) -> Found | None:
    """The cheapest place with as many of the preferred constraints as can be had."""
    tree, rooms, layout = grid.tree, grid.rooms, grid.layout
    before = {i: gang.prefer[m] for i, m in enumerate(grid.members) if m in gang.prefer}
    if before:
        # What is only preferred moves no gang that runs.
        found = kept(tree, rooms, layout, layout.required, before)
        if found is not None and (not layout.balanced or _in_equal_parts(grid, found)):
            return found
    for constraints in _wishes(tree, layout):
        if layout.balanced:
            found = balanced(tree, rooms, layout, constraints)
        elif fits(tree, rooms, layout, constraints):
            limits = spread_limits(tree, rooms, layout, constraints) if layout.spread else None
            found = cheapest(tree, rooms, layout, constraints, limits)
        else:
            found = None
        if found is not None:
            return found
    return None


def _in_equal_parts(grid: Grid, found: Found) -> bool:
    """Whether at every level each domain that is used holds the same number of pods."""
    return all(len(set(Counter(row[node] for node in found.nodes).values())) == 1 for row in grid.tree.domains)


def _demands(gang: GangRequest) -> bool:
    """Whether the gang waits if it cannot have what it wants of the topology."""
    return bool(gang.layout and gang.layout.demands) or any(role.spread for role in gang.roles if role.replicas)


def _open_to(tree: Tree, gang: GangRequest, snapshot: Snapshot) -> Snapshot:
    """The same moment with nothing free where the gang may not go, since it or another wants to be alone there."""
    alone = snapshot.exclusive or (gang.layout and gang.layout.exclusive)
    closed = closed_nodes(tree, gang, snapshot) if alone else frozenset[str]()
    return replace(snapshot, free={**snapshot.free, **dict.fromkeys(closed, NOTHING)}) if closed else snapshot


def _without(snapshot: Snapshot, gang: GangRequest, taken: Mapping[Member, str]) -> Snapshot:
    """The same moment after some pods of the gang were placed; its old pods give way, so they are left out."""
    free = snapshot.free_for(gang)
    resources = {role.role: role.resources for role in gang.roles}
    for (role, _), node in taken.items():
        free[node] -= resources[role]
    return replace(snapshot, free=free, own={uid: held for uid, held in snapshot.own.items() if uid != gang.job_uid})


def _wishes(tree: Tree, layout: Layout) -> Iterator[tuple[Within, ...]]:
    """What to try to keep: all, then without the last of the preferred ones, and so on."""
    preferred = tuple(c for c in layout.constraints if not c.required and tree.level(c.level) is not None)
    for count in range(len(preferred), -1, -1):
        yield (*layout.required, *preferred[:count])
