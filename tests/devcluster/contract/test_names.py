"""The contract: the names by which the pods of a gang find each other."""

from __future__ import annotations

import json

import pytest

from devcluster.node.testing import Gates, Pods, eventually, state_of

pytestmark = pytest.mark.cluster

# Looks names up until each is as wanted, then says so; then serves its own address, or connects to a peer's.
_LOOK = r"""
import json, socket, sys, time
def resolve(name):
    try:
        return sorted({info[4][0] for info in socket.getaddrinfo(name, 80, socket.AF_INET)})
    except OSError:
        return []
for line in sys.argv[1:]:
    wanted = json.loads(line)
    until = time.monotonic() + 60
    while (got := {name: len(resolve(name)) for name in wanted}) != wanted and time.monotonic() < until:
        time.sleep(0.02)
    print("as wanted" if got == wanted else got, flush=True)
"""
_SERVE = r"""
import os, socket
with socket.create_server((os.environ["IP"], 7000)) as server:
    print("up", flush=True)
    server.accept()[0].sendall(b"hello from a")
"""
_CALL = r"""
import socket, time
for _ in range(200):
    try:
        print(socket.create_connection(("a.gang", 7000)).recv(100).decode(), flush=True)
        break
    except OSError:
        time.sleep(0.05)
"""
_IP = {"name": "IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}


def _service(pods: Pods, name: str, **spec: object) -> None:
    pods.make("services", name, spec={"clusterIP": "None", "selector": {"gang": name}, **spec})


def _member(pods: Pods, name: str, code: str, *arguments: str, gang: str = "gang") -> None:
    pods.create(
        name,
        container={"command": ["python3", "-c", code, *arguments], "env": [_IP]},
        metadata={"labels": {"gang": gang}},
        hostname=name,
        subdomain=gang,
    )


def test_members_of_a_headless_service_find_and_reach_each_other(pods: Pods) -> None:
    _service(pods, "gang", publishNotReadyAddresses=True)
    _member(pods, "a", _SERVE)
    _member(pods, "b", _CALL)
    for name in ("a", "b"):
        assert pods.finished(name)["status"]["phase"] == "Succeeded"
    assert pods.log("b") == "hello from a\n"
    addresses = {pods.get(name)["status"]["podIP"] for name in ("a", "b")}
    assert len(addresses) == 2


def test_names_follow_the_pods_and_the_service(pods: Pods) -> None:
    ns = pods.namespace
    domain = f"gang.{ns}.svc.cluster.local"
    forms = ["a.gang", f"a.gang.{ns}", f"a.gang.{ns}.svc", f"a.{domain}"]
    before = dict.fromkeys(["b.gang", "stranger.gang", "a"], 0)
    together = {**dict.fromkeys(forms, 1), "b.gang": 1, domain: 2, "gang": 2, "stranger.gang": 0, "b": 1, "a": 0}
    alone = {"a.gang": 0, "b.gang": 1, "gang": 1}
    no_service = dict.fromkeys([f"b.gang.{ns}.svc", "gang", "a.gang"], 0) | {"b": 1, f"b.{domain}": 1}
    stages = [json.dumps(stage) for stage in (before, together, alone, no_service)]
    _member(pods, "b", _LOOK, *stages)
    _member(pods, "stranger", "import time; time.sleep(100)", gang="other")
    eventually(lambda: _said(pods, "b", 1), "nothing without a service")
    _service(pods, "gang", publishNotReadyAddresses=True)
    _member(pods, "a", "import time; time.sleep(100)")
    eventually(lambda: _said(pods, "b", 2), "both are there")
    pods.delete("a")
    eventually(lambda: _said(pods, "b", 3), "one is gone")
    pods.client.request("DELETE", pods.path("gang", "services"))
    pods.finished("b")
    assert pods.log("b").splitlines() == ["as wanted"] * 4


def _said(pods: Pods, name: str, lines: int) -> bool:
    pod = pods.get(name)
    if pod["status"]["phase"] == "Pending":
        return False
    log = pods.log(name).splitlines()
    assert log == ["as wanted"] * len(log), state_of(pod)
    return len(log) >= lines


def test_unready_members_have_names_only_where_the_service_says_so(pods: Pods, gates: Gates) -> None:
    _service(pods, "gang", publishNotReadyAddresses=True)
    _service(pods, "ready-only")
    init = [{"name": "holds", "command": ["sh", "-c", gates.wait("ready")], **gates.mounts}]
    for gang in ("gang", "ready-only"):
        pods.create(
            f"slow-{gang}",
            "sleep",
            "100",
            metadata={"labels": {"gang": gang}},
            hostname="slow",
            subdomain=gang,
            initContainers=init,
            volumes=gates.volumes,
        )
    for gang in ("gang", "ready-only"):
        pods.wait_until(f"slow-{gang}", lambda pod: bool(pod["status"].get("podIP")), "it has an address")
    first, then = {"slow.gang": 1, "slow.ready-only": 0}, {"slow.gang": 1, "slow.ready-only": 1}
    pods.create("looks", "python3", "-c", _LOOK, json.dumps(first), json.dumps(then))
    eventually(lambda: _said(pods, "looks", 1), "only one has a name")
    gates.open("ready")
    pods.finished("looks")
    assert pods.log("looks").splitlines() == ["as wanted"] * 2
