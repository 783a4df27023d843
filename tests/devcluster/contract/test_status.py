"""The contract: what a pod's status says while it lives."""

from __future__ import annotations

import json
import threading
from datetime import datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

import pytest

from devcluster.cluster import Cluster
from devcluster.node.testing import Client, Gates, Object, Pods, conditions_of, state_of

pytestmark = pytest.mark.cluster
_STEPS = ("init", "short", "long")


def _history(cluster: Cluster, pods: Pods, name: str) -> tuple[list[Object], threading.Thread]:
    """Every version of a pod until it is finished, as a watch delivers them."""
    seen: list[Object] = []
    query = {"watch": "true", "fieldSelector": f"metadata.name={name}", "timeoutSeconds": "100"}
    client = Client(cluster)

    def watch() -> None:
        for event in client.lines("GET", pods.path() + "?" + urlencode(query)):
            seen.append(json.loads(event)["object"])
            if seen[-1]["status"].get("phase") in ("Succeeded", "Failed"):
                break
        client.close()

    thread = threading.Thread(target=watch)
    thread.start()
    return seen, thread


def test_phases_and_conditions_from_start_to_success(cluster: Cluster, pods: Pods, gates: Gates) -> None:
    seen, watching = _history(cluster, pods, "life")
    steps = {name: {"name": name, "command": ["sh", "-c", gates.wait(name)], **gates.mounts} for name in _STEPS}
    pods.create(
        "life",
        initContainers=[steps["init"]],
        containers=[steps["short"], steps["long"]],
        volumes=gates.volumes,
    )
    for name in _STEPS:
        pods.wait_until("life", partial(_is, container=name, kind="running"), f"{name} runs")
        if name == "short":
            pods.wait_until("life", partial(_is, container="long", kind="running"), "both run")
        gates.open(name)
        pods.wait_until("life", partial(_is, container=name, kind="terminated"), f"{name} has ended")
    watching.join()
    phases = [pod["status"]["phase"] for pod in seen]
    assert phases == sorted(phases, key=["Pending", "Running", "Succeeded"].index)
    assert set(phases) == {"Pending", "Running", "Succeeded"}
    during_init = next(pod for pod in seen if _is(pod, "init", "running"))
    both = next(pod for pod in seen if _is(pod, "short", "running") and _is(pod, "long", "running"))
    one = next(pod for pod in seen if _is(pod, "short", "terminated") and _is(pod, "long", "running"))
    last = seen[-1]
    assert conditions_of(during_init) == {
        "PodScheduled": ("True", ""),
        "PodReadyToStartContainers": ("True", ""),
        "Initialized": ("False", "ContainersNotInitialized"),
        "ContainersReady": ("False", "ContainersNotReady"),
        "Ready": ("False", "ContainersNotReady"),
    }
    assert during_init["status"]["phase"] == "Pending"
    assert state_of(during_init, "long") == {"is": "waiting", "reason": "PodInitializing"}
    assert set(conditions_of(both).values()) == {("True", "")}
    assert one["status"]["phase"] == "Running"
    assert conditions_of(one)["Ready"] == conditions_of(one)["ContainersReady"] == ("False", "ContainersNotReady")
    assert conditions_of(last) == {
        "PodScheduled": ("True", ""),
        "PodReadyToStartContainers": ("False", ""),
        "Initialized": ("True", "PodCompleted"),
        "ContainersReady": ("False", "PodCompleted"),
        "Ready": ("False", "PodCompleted"),
    }


def _is(pod: Object, container: str, kind: str) -> bool:
    return "containerStatuses" in pod["status"] and state_of(pod, container)["is"] == kind


def test_what_a_status_holds(pods: Pods) -> None:
    pods.create("facts", "sh", "-c", "exit 1")
    pod = pods.finished("facts")
    status = pod["status"]
    node = pods.client.request("GET", f"/api/v1/nodes/{pod['spec']['nodeName']}")
    assert status["podIPs"] == [{"ip": status["podIP"]}]
    assert {"type": "InternalIP", "address": status["hostIP"]} in node["status"]["addresses"]
    assert status["observedGeneration"] == pod["metadata"]["generation"]
    container = status["containerStatuses"][0]
    assert (container["name"], container["image"]) == ("main", pods.image)
    assert (container["ready"], container["started"], container["restartCount"]) == (False, False, 0)
    assert "sha256:" in container["imageID"], (
        "of an image that was pulled, NAME@sha256:...; of an imported one, without"
    )
    assert container["containerID"] == state_of(pod)["containerID"] != ""
    times = [pod["metadata"]["creationTimestamp"], status["startTime"], state_of(pod)["startedAt"]]
    times.append(state_of(pod)["finishedAt"])
    assert [datetime.fromisoformat(one) for one in times] == sorted(datetime.fromisoformat(one) for one in times)
    assert conditions_of(pod)["Ready"] == ("False", "PodFailed")
    transitions = {one["type"]: one["lastTransitionTime"] for one in status["conditions"]}
    assert transitions["PodScheduled"] <= status["startTime"] <= transitions["PodReadyToStartContainers"]


def test_nodes_are_as_they_were_asked_for(pods: Pods, kubelet: Any) -> None:
    selector = urlencode({"labelSelector": ",".join(f"{key}={value}" for key, value in pods.selector.items())})
    nodes = pods.client.request("GET", f"/api/v1/nodes?{selector}")["items"]
    assert len(nodes) == 2
    for node in nodes:
        name = node["metadata"]["name"]
        assert node["metadata"]["labels"]["kubernetes.io/hostname"] == name
        assert node["status"]["allocatable"]["cpu"] == str(kubelet.cpus)
        assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"
        states = {one["type"]: one["status"] for one in node["status"]["conditions"]}
        assert states == {"Ready": "True", "MemoryPressure": "False", "DiskPressure": "False", "PIDPressure": "False"}
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}"
        assert pods.client.request("GET", lease)["spec"]["holderIdentity"] == name
