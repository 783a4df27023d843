"""Counts, level by level: the room that a gang finds, and what its traffic crosses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from meshwright.picture.model import Crossing, LevelRoom
from meshwright.placement.model import GangRequest, Member, Snapshot
from meshwright.placement.nesting.cost import Cost
from meshwright.placement.nesting.grid import grid_kind
from meshwright.placement.nesting.layout import compact
from meshwright.placement.nesting.room import units, usable
from meshwright.placement.solver import FirstFit, kinds_of
from meshwright.placement.topology.tree import Tree


def rooms(tree: Tree, request: GangRequest, snapshot: Snapshot) -> tuple[LevelRoom, ...]:
    """By level, outermost first: the room for the pods of the gang's grid, or for its most numerous kind of pods."""
    kinds = kinds_of(request, snapshot)
    if not kinds or not tree.nodes:
        return ()
    kind = grid_kind(request, snapshot) or max(kinds, key=lambda k: len(k.members))
    pods = len(kind.members)
    layout = request.layout if request.layout and request.layout.pods == pods else compact(pods)
    required = [c for c in layout.constraints if c.required and tree.level(c.level) is not None]
    sizes = units(tree, layout, required)
    free, takers = snapshot.free_for(request), set(kind.nodes)
    room = [kind.resources.times_in(free[n.name], pods) if n.name in takers else 0 for n in tree.nodes]
    held = usable(tree, room, sizes)
    found = []
    for depth, level in enumerate(tree.levels[1:], start=1):
        row = held[depth]
        best = max(range(len(row)), key=lambda domain: (row[domain], -domain))
        whole = sum(pods <= each for each in row)
        path = tree.path(depth, best) if row[best] else ""
        found.append(LevelRoom(level.name, len(row), sizes[depth], path, row[best], whole))
    return tuple(found)


def crossings(
    tree: Tree, request: GangRequest, snapshot: Snapshot, places: Mapping[Member, str]
) -> tuple[Crossing, ...]:
    """By level, outermost first: the domains that the gang is in and what crosses them, here and with first fit."""
    position = {node.name: i for i, node in enumerate(tree.nodes)}
    ours = _bytes(tree, request, snapshot, places, position)
    # First fit knows no topology: it would also take nodes that stand nowhere, and could not be compared.
    labelled = replace(snapshot, nodes=tree.nodes, _verdicts={})
    naive = FirstFit().place(replace(request, prefer={}), labelled)
    theirs = _bytes(tree, request, labelled, naive.nodes, position) if naive else {}
    found = []
    for depth, level in enumerate(tree.levels[1:], start=1):
        row = tree.domains[depth]
        domains = len({row[position[node]] for node in places.values() if node in position})
        found.append(Crossing(level.name, domains, ours.get(level.name), theirs.get(level.name)))
    return tuple(found)


def _bytes(
    tree: Tree, request: GangRequest, snapshot: Snapshot, places: Mapping[Member, str], position: Mapping[str, int]
) -> Mapping[str, float]:
    """Bytes of a step by level; empty where nothing is known of who talks to whom, or a pod stands nowhere."""
    kind = grid_kind(request, snapshot)
    if request.layout is None or kind is None or request.layout.axes == compact(request.layout.pods).axes:
        return {}
    nodes = [position.get(places.get(member, ""), -1) for member in kind.members]
    return {} if -1 in nodes else Cost.of(tree, request.layout).crossing(nodes)
