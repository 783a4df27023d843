"""The control plane as its users see it: it serves, schedules, logs, refuses. One cluster for the whole file."""

from __future__ import annotations

import http.server
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import pytest

from devcluster.cluster import Cluster
from devcluster.errors import ApiError, CommandError, DevClusterError

pytestmark = pytest.mark.cluster
T = TypeVar("T")


def eventually(condition: Callable[[], T], seconds: float = 30.0) -> T:
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)
    return value


class HandMadeNode:
    """A Node that is alive for as long as `beat` is called."""

    def __init__(self, cluster: Cluster, name: str, log_port: int = 0) -> None:
        self._cluster, self.name = cluster, name
        cluster.request("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": {"hand-made": name}}})
        self._due = 0.0
        self._status = {
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "10"},
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": log_port}},
        }
        self.beat()

    def beat(self) -> bool:
        """Says that the node is Ready now, once a second: an endless stream of writes would starve the node
        controller, whose own write of the taints is then always in conflict with the next of ours."""
        if time.monotonic() < self._due:
            return True
        self._due = time.monotonic() + 1.0
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Made",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        node = self.read()
        node["status"] = self._status | {"conditions": [ready]}
        del node["metadata"]["resourceVersion"]  # the node controller may write between our read and write
        self._cluster.request("PUT", f"/api/v1/nodes/{self.name}/status", node)
        return True

    def read(self) -> dict[str, Any]:
        node: dict[str, Any] = self._cluster.request("GET", f"/api/v1/nodes/{self.name}")
        return node

    def taints(self) -> set[str]:
        return {taint["key"] for taint in self.read()["spec"].get("taints", [])}

    def remove(self) -> None:
        self._cluster.request("DELETE", f"/api/v1/nodes/{self.name}")


@pytest.fixture
def node(cluster: Cluster) -> Iterator[HandMadeNode]:
    made = HandMadeNode(cluster, "hand-made")
    yield made
    made.remove()


def make_pod(cluster: Cluster, namespace: str, name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "example.invalid/none", "resources": {"requests": {"cpu": "1"}}}
    pod = {"metadata": {"name": name, "labels": {"suite": "cluster"}}, "spec": {"containers": [container]} | spec}
    made: dict[str, Any] = cluster.request("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
    return made


def read_pod(cluster: Cluster, namespace: str, name: str) -> dict[str, Any]:
    pod: dict[str, Any] = cluster.request("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")
    return pod


def audit_events(cluster: Cluster) -> list[dict[str, Any]]:
    return [json.loads(line) for line in cluster.audit_log.read_text().splitlines()]


def test_it_serves_the_pinned_kubernetes_to_kubectl_and_helm(cluster: Cluster) -> None:
    version = json.loads(cluster.kubectl("version", "--output=json").stdout)
    assert version["serverVersion"]["gitVersion"] == version["clientVersion"]["gitVersion"] == "v1.34.4"
    assert json.loads(cluster.helm("list", "--output=json").stdout) == []


def test_a_failed_command_raises_what_it_said(cluster: Cluster) -> None:
    with pytest.raises(CommandError, match=r'pods "missing" not found') as caught:
        cluster.kubectl("get", "pod", "missing")
    assert caught.value.returncode == 1
    assert cluster.kubectl("get", "pod", "missing", check=False).returncode == 1


def test_a_pod_is_scheduled_onto_a_node_made_by_hand(cluster: Cluster, namespace: str, node: HandMadeNode) -> None:
    make_pod(cluster, namespace, "fits", nodeSelector={"hand-made": node.name})  # other tests leave nodes, too
    make_pod(cluster, namespace, "elsewhere", nodeSelector={"hand-made": "nowhere"})

    eventually(lambda: node.beat() and read_pod(cluster, namespace, "fits")["spec"].get("nodeName") == node.name)

    conditions = eventually(lambda: read_pod(cluster, namespace, "elsewhere")["status"].get("conditions"))
    assert [condition["reason"] for condition in conditions] == ["Unschedulable"]


def test_a_silent_node_is_unreachable_after_the_grace_period(cluster: Cluster, node: HandMadeNode) -> None:
    eventually(lambda: node.beat() and not node.taints())
    silent_since = time.monotonic()

    eventually(lambda: "node.kubernetes.io/unreachable" in node.taints())

    assert time.monotonic() - silent_since > 6  # 8 s, counted by the controller from its own last look


def test_the_audit_log_tells_what_was_made_and_deleted(cluster: Cluster, namespace: str) -> None:
    made = make_pod(cluster, namespace, "audited")["metadata"]
    cluster.request("DELETE", f"/api/v1/namespaces/{namespace}/pods/audited?gracePeriodSeconds=0")

    # Blocking mode: the events are in the log before the calls were answered, so there is nothing to wait for.
    ours = [event for event in audit_events(cluster) if event.get("objectRef", {}).get("namespace") == namespace]
    pods = [e for e in ours if e["objectRef"]["resource"] == "pods" and "subresource" not in e["objectRef"]]
    create, delete = (event for event in pods if event["user"]["username"] == "admin")
    assert (create["verb"], delete["verb"]) == ("create", "delete")
    for event in (create, delete):
        assert event["objectRef"]["name"] == "audited"
        assert event["responseObject"]["metadata"]["uid"] == made["uid"]
        assert event["responseObject"]["metadata"]["labels"] == {"suite": "cluster"}
        assert datetime.fromisoformat(event["requestReceivedTimestamp"]).tzinfo is not None
    assert (create["responseStatus"]["code"], delete["responseStatus"]["code"]) == (201, 200)


def test_the_audit_log_holds_refusals_but_no_reads_and_no_leases(cluster: Cluster, namespace: str) -> None:
    with pytest.raises(ApiError, match="refused"):
        make_pod(cluster, namespace, "refused", nodeName="x" * 300)
    events = audit_events(cluster)
    refused = [event for event in events if event.get("requestObject", {}).get("metadata", {}).get("name") == "refused"]
    assert [event["responseStatus"]["code"] for event in refused] == [422]
    assert not {event["verb"] for event in events} & {"get", "list", "watch"}
    assert "leases" not in {event.get("objectRef", {}).get("resource") for event in events}


def test_a_service_account_may_do_what_rbac_grants_and_no_more(cluster: Cluster, namespace: str) -> None:
    for command in (
        ("create", "serviceaccount", "reader"),
        ("create", "role", "read-pods", "--verb=get,list", "--resource=pods"),
        ("create", "rolebinding", "reader", "--role=read-pods", f"--serviceaccount={namespace}:reader"),
    ):
        cluster.kubectl("--namespace", namespace, *command)
    config = cluster.kubeconfig_for_service_account(namespace, "reader")
    assert config.stat().st_mode & 0o077 == 0

    as_reader = ("--kubeconfig", str(config))
    who = json.loads(cluster.kubectl(*as_reader, "auth", "whoami", "--output=json").stdout)
    assert who["status"]["userInfo"]["username"] == f"system:serviceaccount:{namespace}:reader"
    assert cluster.kubectl(*as_reader, "get", "pods").returncode == 0
    for refused in (("create", "configmap", "x"), ("get", "pods", "--namespace=default"), ("get", "nodes")):
        with pytest.raises(CommandError, match="forbidden"):
            cluster.kubectl(*as_reader, *refused)


class _LogServer(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"log of {self.path.partition('?')[0]}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silence."""


@pytest.fixture
def log_port(cluster: Cluster) -> Iterator[int]:
    """A node's log endpoint, with the trust that controlplane.py describes."""
    pki = cluster.directory / "pki"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pki / "node.crt", pki / "node.key")
    context.load_verify_locations(pki / "ca.crt")
    context.verify_mode = ssl.CERT_REQUIRED
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _LogServer)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.handle_error = lambda *_: None  # type: ignore[method-assign]  # a refused stranger is no news
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def read_as(context: ssl.SSLContext, port: int) -> bytes:
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
    ):
        tls.sendall(b"GET / HTTP/1.0\r\n\r\n")
        return tls.recv(1)


def test_only_the_api_server_may_fetch_logs_from_a_node(cluster: Cluster, namespace: str, log_port: int) -> None:
    node = HandMadeNode(cluster, "with-logs", log_port)
    make_pod(cluster, namespace, "talks", nodeName=node.name)

    logs = cluster.kubectl("logs", "talks", "--namespace", namespace).stdout
    assert logs == f"log of /containerLogs/{namespace}/talks/main"

    stranger = ssl.create_default_context(cafile=str(cluster.ca))
    with pytest.raises((ssl.SSLError, ConnectionError)):  # which of them is a matter of timing
        read_as(stranger, log_port)
    node.remove()


def test_calls_hang_while_the_api_server_is_paused(cluster: Cluster) -> None:
    answers: list[Any] = []
    cluster.pause_api()
    try:
        call = threading.Thread(target=lambda: answers.append(cluster.request("GET", "/api/v1/namespaces/default")))
        call.start()
        call.join(0.5)
        assert call.is_alive()
        assert not answers
    finally:
        cluster.resume_api()
    call.join(30)
    assert answers[0]["metadata"]["name"] == "default"


def test_the_api_server_can_crash_and_come_back_with_its_data(cluster: Cluster, namespace: str) -> None:
    before = {program.name: program.pid for program in cluster.programs()}
    made = make_pod(cluster, namespace, "remembered")

    cluster.restart_api()

    after = {program.name: program.pid for program in cluster.programs() if program.returncode is None}
    assert before.keys() == after.keys()
    assert {name for name in before if before[name] != after[name]} == {"kube-apiserver"}
    assert read_pod(cluster, namespace, "remembered")["metadata"]["uid"] == made["metadata"]["uid"]
    # The controllers found it again, too: a namespace gets its service account from them.
    cluster.create_namespace(f"{namespace}-after")


def test_attached_from_elsewhere_it_is_the_same_cluster(cluster: Cluster, tmp_path: Path) -> None:
    other = Cluster.attach(cluster.directory)
    assert (other.server, other.kubeconfig) == (cluster.server, cluster.kubeconfig)
    assert other.programs() == cluster.programs()
    with pytest.raises(DevClusterError, match=r"runs in .* already"):
        Cluster.start(cluster.directory)
    with pytest.raises(DevClusterError, match="no cluster runs"):
        Cluster.attach(tmp_path)


def test_a_node_program_that_ends_is_reported_with_its_last_words(cluster: Cluster) -> None:
    with pytest.raises(DevClusterError, match=r"node-program-broken ended with 2:[\s\S]*much"):
        cluster.start_nodes("fake", 1, name_prefix="broken", memory="much")
