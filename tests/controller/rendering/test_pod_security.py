"""What is said of Pod Security is what the API server says, field by field and level by level."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from devcluster.cluster import Cluster
from devcluster.errors import DevClusterError
from meshwright.rendering.pod_security import violations

HARDENED: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "runAsNonRoot": True,
    "seccompProfile": {"type": "RuntimeDefault"},
}
CAPABILITIES = ("IPC_LOCK", "SYS_ADMIN", "NET_ADMIN", "CHOWN", "KILL", "NET_BIND_SERVICE", "ALL")
VOLUMES: dict[str, dict[str, Any]] = {
    "emptyDir": {"medium": "Memory"},
    "hostPath": {"path": "/dev/infiniband"},
    "nfs": {"server": "h", "path": "/"},
    "configMap": {"name": "c"},
    "csi": {"driver": "d"},
    "image": {"reference": "i"},
}


def a_pod(context: Any = None, container: Any = None, **spec: Any) -> dict[str, Any]:
    """A pod that `restricted` takes, changed; None takes a field of the security context away."""
    merged = {key: value for key, value in {**HARDENED, **(context or {})}.items() if value is not None}
    return {"containers": [{"name": "trainer", "image": "i", "securityContext": merged, **(container or {})}], **spec}


PODS: dict[str, dict[str, Any]] = {
    "hardened": a_pod(),
    **{f"add {name}": a_pod({"capabilities": {"drop": ["ALL"], "add": [name]}}) for name in CAPABILITIES},
    **{f"volume {kind}": a_pod(volumes=[{"name": "v", kind: source}]) for kind, source in VOLUMES.items()},
    "privileged": a_pod({"privileged": True, "allowPrivilegeEscalation": True}),
    "escalation": a_pod({"allowPrivilegeEscalation": True}),
    "escalation unsaid": a_pod({"allowPrivilegeEscalation": None}),
    "capabilities unsaid": a_pod({"capabilities": None}),
    "drops little": a_pod({"capabilities": {"drop": ["KILL"]}}),
    "root": a_pod({"runAsUser": 0}),
    "root for the pod": a_pod(securityContext={"runAsUser": 0}),
    "may be root": a_pod({"runAsNonRoot": None}),
    "may be root against the pod": a_pod({"runAsNonRoot": False}, securityContext={"runAsNonRoot": True}),
    "not root by the pod": a_pod({"runAsNonRoot": None}, securityContext={"runAsNonRoot": True}),
    "no seccomp": a_pod({"seccompProfile": None}),
    "seccomp by the pod": a_pod(
        {"seccompProfile": None}, securityContext={"seccompProfile": {"type": "RuntimeDefault"}}
    ),
    "unconfined": a_pod({"seccompProfile": {"type": "Unconfined"}}),
    "unconfined pod": a_pod(securityContext={"seccompProfile": {"type": "Unconfined"}}),
    "host network": a_pod(hostNetwork=True),
    "host network off": a_pod(hostNetwork=False),
    "host PID": a_pod(hostPID=True),
    "host IPC": a_pod(hostIPC=True),
    "host port": a_pod(container={"ports": [{"containerPort": 1, "hostPort": 1}]}),
    "port": a_pod(container={"ports": [{"containerPort": 1}]}),
    "proc": a_pod({"procMount": "Unmasked"}, hostUsers=False),
    "init container": a_pod(initContainers=[{"name": "i", "image": "i", "securityContext": {"privileged": True}}]),
    "open init container": a_pod(initContainers=[{"name": "i", "image": "i"}]),
}


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster) -> Iterator[dict[str, str]]:
    """A namespace for each level."""
    found = {}
    for level in ("baseline", "restricted"):
        found[level] = f"pod-security-{level}"
        cluster.create_namespace(found[level])
        cluster.kubectl("label", "namespace", found[level], f"pod-security.kubernetes.io/enforce={level}")
    yield found
    for name in found.values():
        cluster.kubectl("delete", "namespace", name, "--wait=false")


@pytest.mark.cluster
@pytest.mark.parametrize("level", ["baseline", "restricted"])
@pytest.mark.parametrize("name", PODS)
def test_the_api_server_agrees(cluster: Cluster, namespaces: dict[str, str], level: str, name: str) -> None:
    path = f"/api/v1/namespaces/{namespaces[level]}/pods?dryRun=All"
    try:
        cluster.request("POST", path, {"metadata": {"name": "p"}, "spec": PODS[name]})
        refused = ""
    except DevClusterError as error:
        refused = str(error)
        assert "violates PodSecurity" in refused
    assert bool(list(violations(PODS[name], level))) == bool(refused), refused


@pytest.mark.parametrize("level", ["", "privileged"])
def test_where_nothing_is_enforced_nothing_is_refused(level: str) -> None:
    assert not [field for pod in PODS.values() for field in violations(pod, level)]


def test_each_field_is_named_once_with_its_value() -> None:
    pod = a_pod(
        {"capabilities": {"add": ["IPC_LOCK"]}}, hostNetwork=True, volumes=[{"name": "d", "hostPath": {"path": "/d"}}]
    )
    assert list(violations(pod, "baseline")) == [
        "hostNetwork: true",
        "volumes[d].hostPath: /d",
        "containers[trainer].securityContext.capabilities.add: IPC_LOCK",
    ]
    assert list(violations(pod, "restricted")).count("hostNetwork: true") == 1
