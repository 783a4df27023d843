"""Pods beside the grid, such as parameter servers: near another role's pods, dealt out over domains, or both.

Pods of a role are equal and each is priced by itself, so taking the best place for one after the other is exact.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush

from meshwright.placement.model import GangRequest, Member, RoleRequest, Snapshot
from meshwright.placement.supply.resources import Resources
from meshwright.placement.topology.tree import Tree


def in_order(roles: Iterable[RoleRequest], there: Iterable[str]) -> list[RoleRequest]:
    """Roles with wishes, each after the one that it wants to be near; where they go round in a circle, as given.

    Args:
        roles: those to be placed.
        there: names of the roles that have their places already.
    """
    left, placed, found = [role for role in roles if role.near or role.spread], set(there), []
    while left:
        waiting = {role.role for role in left}
        role = next((r for r in left if r.near in placed or r.near not in waiting), left[0])
        left.remove(role)
        placed.add(role.role)
        found.append(role)
    return found


def place_role(
    gang: GangRequest,
    role: RoleRequest,
    snapshot: Snapshot,
    free: Mapping[str, Resources],
    tree: Tree,
    nodes: Mapping[Member, str],
) -> dict[Member, str] | None:
    """A node for every pod of the role; None if one is left over. Pods keep the nodes that they had where they can.

    Args:
        gang: the gang.
        role: one of its roles; its level is in the tree.
        snapshot: tells which nodes take the pods.
        free: by node, what is left.
        tree: the topology.
        nodes: the gang's pods that have places already.
    """
    for avoid in [gang.avoid, frozenset[str]()] if gang.avoid else [gang.avoid]:
        takers = {node.name for node in snapshot.takers(role.rules)} - snapshot.held - avoid
        rooms = [
            role.resources.times_in(free[node.name], role.replicas) if node.name in takers else 0 for node in tree.nodes
        ]
        if sum(rooms) >= role.replicas:
            prices = _prices(tree, [node for (name, _), node in nodes.items() if name == role.near])
            found = _dealt(gang, role, tree, rooms, prices)
            return {member: tree.nodes[position].name for member, position in found.items()}
    return None


def _dealt(
    gang: GangRequest, role: RoleRequest, tree: Tree, rooms: list[int], prices: Sequence[float]
) -> dict[Member, int]:
    """One pod after the other: into the emptiest domain, and there onto the nearest node with the least room."""
    level = (tree.level(role.spread) if role.spread else None) or 0
    found: dict[Member, int] = {}
    for member in role.members():
        before = tree.position.get(gang.prefer.get(member, ""), -1)
        if before >= 0 and rooms[before]:
            found[member] = before
            rooms[before] -= 1
    held = Counter(tree.domains[level][node] for node in found.values())
    queues = [
        sorted((n for n in tree.span(level, d) if rooms[n]), key=lambda n: (prices[n], rooms[n], n), reverse=True)
        for d in range(tree.size(level))
    ]
    heap = [(held[d], prices[queue[-1]], d) for d, queue in enumerate(queues) if queue]
    heapify(heap)
    for member in role.members():
        if member in found:
            continue
        count, _, domain = heappop(heap)
        queue = queues[domain]
        found[member] = queue[-1]
        rooms[queue[-1]] -= 1
        if not rooms[queue[-1]]:
            queue.pop()
        if queue:
            heappush(heap, (count + 1, prices[queue[-1]], domain))
    return found


def _prices(tree: Tree, targets: Sequence[str]) -> list[float]:
    """By node: what it would cost to talk to all the targets from there; zero where there are none."""
    there = [tree.position[name] for name in targets if name in tree.position]
    prices = [0.0] * len(tree.nodes)
    for level in range(1, len(tree.levels)) if there else ():
        row, weight = tree.domains[level], 1 / tree.levels[level].bandwidth
        inside = Counter(row[node] for node in there)
        for node, domain in enumerate(row):
            prices[node] += weight * (len(there) - inside[domain])
    return prices
