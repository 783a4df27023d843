"""Ports of the node: one pod each."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.placement.supply.host_ports import host_ports
from meshwright.placement.supply.requests import pod_requests
from meshwright.placement.supply.resources import NOTHING, Resources

PORT = "a node without pods on host port "


def pod(*ports: dict[str, Any], **spec: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c", "ports": list(ports)}], **spec}}


def test_a_host_port_is_there_once_on_every_node() -> None:
    one, other = pod_requests(pod({"hostPort": 7777})), pod_requests(pod({"hostPort": 7778}))
    free = Resources(pods=10)
    assert one.times_in(free, 5) == 1
    assert one.times_in(free - one, 5) == 0
    assert one.times_in(free - other, 5) == 1
    assert pod_requests(pod()).times_in(free - one, 50) == 9
    assert one.short_of(free - one) == (f"{PORT}7777/TCP",)


@pytest.mark.parametrize(
    ("asked", "ports"),
    [
        (pod({"hostPort": 53, "protocol": "UDP"}, {"hostPort": 53}), ["53/TCP", "53/UDP"]),
        (pod({"containerPort": 80}), []),
        (pod({"containerPort": 80}, hostNetwork=True), ["80/TCP"]),
        (pod({"containerPort": 80, "hostPort": 0}), []),
        (pod({"hostPort": 80, "hostIP": "0.0.0.0"}), ["80/TCP"]),
        (pod({"hostPort": 80, "hostIP": "10.0.0.1"}), []),
        (pod({"containerPort": "{metrics}"}, hostNetwork=True), []),
        (pod({"hostPort": 80}, {"hostPort": 80}), ["80/TCP"]),
        (pod(initContainers=[{"name": "i", "ports": [{"hostPort": 80}]}]), []),
        (pod(initContainers=[{"name": "i", "restartPolicy": "Always", "ports": [{"hostPort": 80}]}]), ["80/TCP"]),
        ({"spec": {"containers": [{"name": "c"}]}}, []),
        ({}, []),
    ],
)
def test_which_ports_a_pod_takes(asked: dict[str, Any], ports: list[str]) -> None:
    """As kube-scheduler's NodePorts has them."""
    wanted = Resources(other=tuple((f"{PORT}{port}", 1) for port in ports)) if ports else NOTHING
    assert host_ports(asked) == wanted
