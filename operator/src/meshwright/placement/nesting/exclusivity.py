"""Domains that a gang has to itself, in both directions: none may come in, and it goes where no other is.

What is no gang (DaemonSets, pods of other controllers) does not count: every node has some.
"""

from __future__ import annotations

from meshwright.placement.model import GangRequest, Snapshot
from meshwright.placement.topology.tree import Tree


def closed_nodes(tree: Tree, gang: GangRequest, snapshot: Snapshot) -> frozenset[str]:
    """Names of the nodes that the gang may not use since it or another one there wants to be alone."""
    closed: set[int] = set()
    for uid, name in snapshot.exclusive.items():
        level = tree.level(name)
        # A level that is no more, since the operator's settings were changed, keeps nobody out.
        if uid != gang.job_uid and level is not None:
            closed |= _domain_nodes(tree, level, snapshot, uid)
    own = tree.level(gang.layout.exclusive) if gang.layout and gang.layout.exclusive else None
    if own is not None:
        for uid in snapshot.own:
            if uid != gang.job_uid:
                closed |= _domain_nodes(tree, own, snapshot, uid)
    return frozenset(tree.nodes[node].name for node in closed)


def _domain_nodes(tree: Tree, level: int, snapshot: Snapshot, uid: str) -> set[int]:
    """Nodes of the domains in which a gang holds something."""
    row, position = tree.domains[level], tree.position
    domains = {row[position[name]] for name in snapshot.own.get(uid, ()) if name in position}
    return {node for domain in domains for node in tree.span(level, domain)}
