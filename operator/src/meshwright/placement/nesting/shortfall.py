"""Why the topology has no place for a gang, in counts of domains and nodes, never their names."""

from __future__ import annotations

from collections.abc import Sequence

from meshwright.placement.model import GangRequest, Refused, Snapshot
from meshwright.placement.nesting.grid import Grid
from meshwright.placement.nesting.layout import Layout, Within
from meshwright.placement.nesting.room import units, usable
from meshwright.placement.reasons import describe
from meshwright.placement.solver import Kind
from meshwright.placement.topology.tree import Tree
from meshwright_api import names


def missing_levels(tree: Tree, gang: GangRequest) -> tuple[str, ...]:
    """Levels that the gang insists on and the topology does not have."""
    asked = {role.spread for role in gang.roles if role.replicas and role.spread}
    if gang.layout is not None:
        asked |= {constraint.level for constraint in gang.layout.constraints if constraint.required}
        asked |= {level for level in (gang.layout.exclusive, gang.layout.spread) if level}
    return tuple(sorted(level for level in asked if tree.level(level) is None))


def explain(tree: Tree, grid: Grid | None, snapshot: Snapshot, base: Refused, closed: int, size: int) -> Refused:
    """The first thing that stands in the way.

    Args:
        tree: the topology.
        grid: the gang's grid, if it has one.
        snapshot: what is free to it.
        base: what is missing if the topology is left out of account.
        closed: nodes that it may not use since another gang is alone there, or it wants to be.
        size: pods of the gang.
    """
    lacking = "".join(f"; {_nodes(n)} without label {key} left out" for key, n in sorted(tree.unlabelled.items()))
    if closed:
        lacking += f"; {_nodes(closed)} left out, in domains that one job has to itself"
    if grid is None or sum(grid.rooms) < grid.layout.pods:
        return Refused(base.reason, base.message + lacking)
    blocking = _blocking(tree, grid.rooms, grid.layout, grid.layout.required)
    if blocking is not None:
        message = _sentence(tree, grid.rooms, grid.layout, grid.kind, blocking, snapshot)
    elif grid.layout.balanced and len(grid.members) == size:
        message = (
            f"there is room for {sum(grid.rooms)} pods, {grid.layout.pods} are asked for, but not in equal parts "
            "(balanced): no choice of domains takes the same number of pods in each, at every level"
        )
    else:
        message = base.message
    return Refused(names.REASON_WAITING_FOR_CAPACITY if message is not base.message else base.reason, message + lacking)


def no_such_levels(tree: Tree, missing: Sequence[str], problem: str = "") -> str:
    """What to do about levels that the topology does not have; `problem` says why it has none."""
    asked, there = ", ".join(missing), ", ".join(level.name for level in tree.levels[1:])
    if len(tree.levels) == 2:
        problem = problem or (
            "the operator was told of no topology; an administrator names the nodes' labels with its setting topology"
        )
        return f"asks for the topology level {asked}, and the only level is {there}: {problem}"
    return f"the cluster's topology has no level {asked}; use one of {there}"


def _blocking(tree: Tree, rooms: Sequence[int], layout: Layout, required: Sequence[Within]) -> Within | None:
    """The constraint with which, added from the lowest level upwards, there is no place any more."""
    by_depth = sorted(required, key=lambda c: -(tree.level(c.level) or 0))
    for count in range(1, len(by_depth) + 1):
        capacity = usable(tree, rooms, units(tree, layout, by_depth[:count]))
        if capacity[0][0] < layout.pods:
            return by_depth[count - 1]
    return None


def _sentence(
    tree: Tree, rooms: Sequence[int], layout: Layout, kind: Kind, blocking: Within, snapshot: Snapshot
) -> str:
    """Of the kind `needs 4 pods under one leaf; the best leaf has room for 3: of its 4 nodes 1 not ready`."""
    level = tree.level(blocking.level)
    assert level is not None
    required = [c for c in layout.required if (tree.level(c.level) or 0) >= level]
    unit = units(tree, layout, required)[level]
    capacity = usable(tree, rooms, units(tree, layout, required))[level]
    groups, found = layout.pods // unit, sum(capacity) // unit
    within = tree.levels[level].name
    plain = usable(tree, rooms, units(tree, layout, [c for c in required if c is not blocking]))[level]
    best = max(range(len(plain)), key=lambda d: (plain[d], -d))
    what = " x ".join(sorted(blocking.axes))
    need = f"needs {groups} times " if groups > 1 else "needs "
    had = f"{found} such groups fit; " if groups > 1 else ""
    pods = "1 pod" if unit == 1 else f"{unit} pods"
    return (
        f"{need}{pods} under one {within} ({what}), each with {describe(kind.resources)}; {had}"
        f"the best {within} has room for {plain[best]}: {_census(tree, rooms, level, best, kind, snapshot)}"
    )


def _census(tree: Tree, rooms: Sequence[int], level: int, domain: int, kind: Kind, snapshot: Snapshot) -> str:
    """What the nodes of a domain are doing."""
    takers = set(kind.nodes)
    obstacles: dict[str, int] = {}
    span = tree.span(level, domain)
    for position in span:
        node = tree.nodes[position]
        if rooms[position]:
            cause = "with room"
        elif node.name in snapshot.held:
            cause = "kept for jobs ahead"
        elif node.name in takers:
            short = kind.resources.short_of(node.allocatable)
            cause = f"too small ({', '.join(short)})" if short else "busy"
        else:
            cause = "that the pods may not use"
        obstacles[cause] = obstacles.get(cause, 0) + 1
    return f"of its {_nodes(len(span))} " + ", ".join(f"{n} {cause}" for cause, n in sorted(obstacles.items()))


def _nodes(count: int) -> str:
    return "1 node" if count == 1 else f"{count} nodes"
