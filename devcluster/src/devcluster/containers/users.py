"""The static users of a cluster with container nodes, and their groups; each proves itself with a token of its own."""

from __future__ import annotations

from devcluster.containers.network import MOST_NODES

PROXY_USER = "system:kube-proxy"  # upstream's roles know it
DNS_USER = "devcluster-dns"
FIRST, NAME = 1, "container-{}"


def node_names() -> tuple[str, ...]:
    """The names of all nodes that can be."""
    return tuple(NAME.format(index) for index in range(FIRST, MOST_NODES + 1))


def user_of(node: str) -> str:
    """As the Node authorizer wants it."""
    return f"system:node:{node}"


def groups() -> dict[str, str]:
    """Groups by user."""
    return {user_of(node): "system:nodes" for node in node_names()} | {PROXY_USER: "", DNS_USER: "system:masters"}
