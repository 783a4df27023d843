"""The network of a cluster with container nodes: addresses, and the commands that make it. Pure.

The whole cluster has a network namespace of its own, its supervisor's. In it a bridge, at `GATEWAY`, joins the nodes,
each of which is a network namespace again, with a bridge for its pods:

    supervisor's namespace          node i's namespace
    kube0  10.244.0.1/24  --------  up0  10.244.0.(10+i)
    etcd, API server, DNS, ...      pods0  10.244.i.1/24  ---  pods 10.244.i.10 and up

Nothing of it is reachable from, or routed to, the machine's own network, so that two clusters may have the same
addresses.
"""

from __future__ import annotations

from collections.abc import Sequence

GATEWAY = "10.244.0.1"
"""Where the nodes reach the control plane and its DNS; their way to each other."""
POD_RANGE = "10.244.0.0/16"
MOST_NODES = 9
BRIDGE, UPLINK, POD_BRIDGE = "kube0", "up0", "pods0"


def node_address(index: int) -> str:
    """The address of the node itself; `index` counts from 1."""
    return f"10.244.0.{10 + index}"


def pod_subnet(index: int) -> str:
    """The addresses of the node's pods."""
    return f"10.244.{index}.0/24"


def pod_gateway(index: int) -> str:
    """The node's address among its pods."""
    return f"10.244.{index}.1"


def every_node_address() -> tuple[str, ...]:
    """For certificates that are made before any node."""
    return tuple(node_address(index) for index in range(1, MOST_NODES + 1))


def cluster_commands() -> list[list[str]]:
    """To be run in the cluster's namespace, once."""
    return _split(
        "ip link set lo up",
        f"ip link add {BRIDGE} type bridge",
        f"ip addr add {GATEWAY}/24 dev {BRIDGE}",
        f"ip link set {BRIDGE} up",
        "sysctl -qw net.ipv4.ip_forward=1",
        *(f"ip route add {pod_subnet(index)} via {node_address(index)}" for index in range(1, MOST_NODES + 1)),
    )


def uplink_commands(index: int, init_pid: int) -> list[list[str]]:
    """To be run in the cluster's namespace for each node, whose init has that process number."""
    return _split(
        f"ip link add {veth(index)} type veth peer name {UPLINK} netns {init_pid}",
        f"ip link set {veth(index)} master {BRIDGE} up",
    )


def node_commands(index: int) -> list[list[str]]:
    """To be run in the node's namespace, once."""
    others = [other for other in range(1, MOST_NODES + 1) if other != index]
    return _split(
        "ip link set lo up",
        f"ip addr add {node_address(index)}/24 dev {UPLINK}",
        f"ip link set {UPLINK} up",
        f"ip route add default via {GATEWAY}",
        f"ip link add {POD_BRIDGE} type bridge",
        f"ip addr add {pod_gateway(index)}/24 dev {POD_BRIDGE}",
        f"ip link set {POD_BRIDGE} up",
        "sysctl -qw net.ipv4.ip_forward=1",
        *(f"ip route add {pod_subnet(other)} via {node_address(other)}" for other in others),
    )


def link_command(index: int, state: str) -> list[str]:
    """To be run in the cluster's namespace: takes the node's cable out (`down`) or puts it back (`up`)."""
    return ["ip", "link", "set", veth(index), state]


def veth(index: int) -> str:
    """The cluster's end of the node's cable."""
    return f"node{index}"


def _split(*commands: str) -> list[list[str]]:
    return [command.split() for command in commands]


def in_namespaces_of(pid: int, *kinds: str) -> Sequence[str]:
    """A prefix that runs a command in namespaces of that process: `net`, `mount`, `pid`."""
    return ("nsenter", f"--target={pid}", *(f"--{kind}" for kind in kinds), "--")
