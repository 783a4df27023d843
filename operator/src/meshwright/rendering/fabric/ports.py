"""Ports of gangs whose pods use the network of their nodes, where two with one number would collide."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Final

from meshwright.placement.model import Member
from meshwright.rendering.errors import PortsTaken

PORTS: Final = range(20_000, 30_000)
"""Below the ports that Linux gives to clients and Kubernetes to NodePorts."""


def derived(identity: str) -> int:
    """Where in the range an incarnation begins to look: spread evenly, and the same whoever asks."""
    digest = hashlib.sha256(identity.encode()).digest()
    return PORTS[int.from_bytes(digest[:4], "big") % len(PORTS)]


def block(identity: str, nodes: Mapping[Member, str], taken: Iterable[range]) -> range:
    """The ports of one incarnation: one to meet at, then one for each of its pods that share a node.

    Args:
        identity: of the incarnation.
        nodes: where its pods go.
        taken: blocks of other gangs on those nodes.

    Raises:
        PortsTaken: there is no such block.
    """
    size = 1 + max(Counter(nodes.values()).values(), default=1)
    others = tuple(taken)
    first = derived(identity)
    last = PORTS.stop - size
    for start in (*range(first, last + 1), *range(PORTS.start, min(first, last + 1))):
        wanted = range(start, start + size)
        if not any(wanted.start < other.stop and other.start < wanted.stop for other in others):
            return wanted
    raise PortsTaken(f"no {size} ports in a row are free on the host network of the gang's nodes")


def slots(nodes: Mapping[Member, str]) -> dict[Member, int]:
    """Which of the pods on its node each pod is, from 0."""
    by_node = sorted(nodes, key=lambda member: (nodes[member], member))
    return {
        member: slot
        for _, members in groupby(by_node, key=lambda member: nodes[member])
        for slot, member in enumerate(members)
    }
