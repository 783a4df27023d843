"""The addresses of container nodes: disjoint, and each reachable from each by the routes that are made."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from itertools import combinations

from devcluster.containers import network

INDEXES = range(1, network.MOST_NODES + 1)


def routes(commands: list[list[str]]) -> dict[IPv4Network, IPv4Address]:
    """What `ip route add SUBNET via ADDRESS` adds."""
    found = [command for command in commands if command[:3] == ["ip", "route", "add"] and command[3] != "default"]
    return {IPv4Network(command[3]): IPv4Address(command[5]) for command in found}


def test_no_two_nodes_share_an_address() -> None:
    subnets = [IPv4Network(network.pod_subnet(index)) for index in INDEXES]
    assert not any(one.overlaps(other) for one, other in combinations(subnets, 2))
    assert all(subnet.subnet_of(IPv4Network(network.POD_RANGE)) for subnet in subnets)
    nodes = {IPv4Address(network.node_address(index)) for index in INDEXES} | {IPv4Address(network.GATEWAY)}
    assert len(nodes) == network.MOST_NODES + 1
    assert not any(node in subnet for node in nodes for subnet in subnets)


def test_every_place_has_a_route_to_the_pods_of_every_node() -> None:
    way = {IPv4Network(network.pod_subnet(index)): IPv4Address(network.node_address(index)) for index in INDEXES}
    assert routes(network.cluster_commands()) == way
    for index in INDEXES:
        own = IPv4Network(network.pod_subnet(index))
        assert routes(network.node_commands(index)) == {subnet: via for subnet, via in way.items() if subnet != own}
        assert IPv4Address(network.pod_gateway(index)) in own
