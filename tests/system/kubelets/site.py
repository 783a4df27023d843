"""A cluster of real kubelets on which the chart was installed, and what tests do to it. Judged from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from devcluster.cluster import Cluster
from devcluster.containers.node import ContainerNode
from tests.installing import CHART, SYSTEM
from tests.system.stage import Json, Stage, eventually
from tests.system.training import write_texts

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
SLOT = "example.com/slot"
"""A resource of which each node has one: the pods of a gang that ask for it are on different nodes."""
FAST = {
    "lease-duration-seconds": 3,
    "lease-renew-deadline-seconds": 2,
    "lease-retry-seconds": 0.4,
    "resync-seconds": 5,
    "node-lost-seconds": 2,
    "retry-cap-seconds": 2,
    "heartbeat-interval-seconds": 1,
    "progress-seconds": 1,
}
"""Settings of the operator, shortened where a test would wait for them."""


@dataclass(frozen=True)
class Site:
    """The cluster; `volumes` is a folder of this machine that its nodes see, too."""

    cluster: Cluster
    volumes: Path

    def install(self) -> None:
        """`helm install`, into a namespace of the strictest Pod Security level; waits until the operator is ready."""
        self.cluster.create_namespace(SYSTEM)
        self.cluster.request("PATCH", f"/api/v1/namespaces/{SYSTEM}", {"metadata": {"labels": RESTRICTED}})
        settings = [f"settings.{name}={value}" for name, value in FAST.items()]
        self.cluster.helm("install", "meshwright", str(CHART), "--namespace", SYSTEM, "--set", ",".join(settings))
        eventually(lambda: self.operator_deployment()["status"].get("availableReplicas"), "the operator is ready", 120)

    def operator_deployment(self) -> Json:
        """The operator's Deployment."""
        path = f"/apis/apps/v1/namespaces/{SYSTEM}/deployments/meshwright-operator"
        return dict(self.cluster.request("GET", path))

    def operator_pod(self) -> Json:
        """The operator's one pod."""
        [pod] = self.cluster.request("GET", f"/api/v1/namespaces/{SYSTEM}/pods")["items"]
        return dict(pod)

    def nodes_by_operator(self) -> tuple[ContainerNode, ContainerNode]:
        """The node that the operator is not on, and the one that it is on."""
        own = self.operator_pod()["spec"]["nodeName"]
        first, second = sorted(self.cluster.container_nodes, key=lambda node: node.name == own)
        return first, second

    def set_slots(self, slots: Mapping[str, int]) -> None:
        """Gives nodes that many slots."""
        for node, count in slots.items():
            capacity = {"status": {"capacity": {SLOT: str(count)}}}
            self.cluster.request("PATCH", f"/api/v1/nodes/{node}/status", capacity)
            eventually(partial(self._has_slots, node, count), f"{node} has {count} slots")

    def _has_slots(self, node: str, count: int) -> bool:
        allocatable = self.cluster.request("GET", f"/api/v1/nodes/{node}")["status"]["allocatable"]
        return bool(allocatable.get(SLOT) == str(count))

    def node_of(self, pod: Json) -> ContainerNode:
        """The node that the pod is on."""
        return self.cluster.container_nodes[pod["spec"]["nodeName"]]

    def kill_rank(self, pod: Json) -> None:
        """SIGKILL for the process that the agent in the pod started; nobody is told."""
        agent = self._task(pod, "trainer")[1]
        self.node_of(pod).run("pkill", "-KILL", "--parent", agent)

    def kill_container(self, pod: Json, container: str) -> None:
        """SIGKILL for a container's first process; nobody is told."""
        self.node_of(pod).run("kill", "-KILL", self._task(pod, container)[1])

    def freeze(self, pod: Json, *, thaw: bool = False) -> None:
        """Stops all processes of the pod's container, or lets them go on."""
        self.node_of(pod).ctr("tasks", "resume" if thaw else "pause", self._task(pod, "trainer")[0])

    def _task(self, pod: Json, container: str) -> tuple[str, str]:
        """containerd's name of a container, and the process number of its first process on the node."""
        statuses = pod["status"]["containerStatuses"]
        wanted = next(one["containerID"] for one in statuses if one["name"] == container).removeprefix("containerd://")
        tasks = [line.split() for line in self.node_of(pod).ctr("tasks", "ls").splitlines()]
        return wanted, next(task[1] for task in tasks if task[0] == wanted)

    def stage(self, namespace: str) -> Stage:
        """A new namespace of the level `restricted`."""
        self.cluster.create_namespace(namespace)
        self.cluster.request("PATCH", f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": RESTRICTED}})
        return Stage(self.cluster, namespace)

    def claim(self, stage: Stage, name: str, folder: Path) -> Json:
        """Offers a folder of this machine as the claim `name`; returns the job's volume for it, at /shared."""
        modes, size = ["ReadWriteMany"], {"storage": "1Gi"}
        volume = {
            "metadata": {"name": f"{stage.namespace}-{name}"},
            "spec": {
                "capacity": size,
                "accessModes": modes,
                "hostPath": {"path": str(folder)},
                "claimRef": {"namespace": stage.namespace, "name": name},
                "storageClassName": "",
            },
        }
        self.cluster.request("POST", "/api/v1/persistentvolumes", volume)
        spec = {"accessModes": modes, "resources": {"requests": size}, "storageClassName": ""}
        claim = {"metadata": {"name": name}, "spec": {**spec, "volumeName": volume["metadata"]["name"]}}
        path = f"/api/v1/namespaces/{stage.namespace}/persistentvolumeclaims"
        self.cluster.request("POST", path, claim)
        return {"name": "shared", "mountPath": "/shared", "persistentVolumeClaim": {"claimName": name}}


def a_shared_folder(parent: Path) -> Path:
    """A folder with texts that the image's user may write to, as on a network file system."""
    shared = parent / "shared"
    write_texts(shared / "text")
    shared.chmod(0o777)
    for folder in (shared / "text", *shared.parents[:4]):
        folder.chmod(0o755)
    return shared


def a_trained_job(name: str, section: Json, volume: Json, *, replicas: int = 2, node: str = "") -> Json:
    """A job of the built-in trainer whose pods take a slot each.

    Args:
        name: of the job.
        section: `spec.trainer`.
        volume: what its pods share.
        replicas: how many pods.
        node: on which all of them must be; empty for any.
    """
    selector = {"nodeSelector": {"kubernetes.io/hostname": node}} if node else {}
    container = {
        "name": "trainer",
        "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
        "resources": {"requests": {"cpu": "300m"}, "limits": {"memory": "1Gi", SLOT: "1"}},
    }
    pod = {"containers": [container], **selector}
    return {
        "apiVersion": "meshwright.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {
            "trainer": section,
            "roles": [{"name": "worker", "replicas": replicas, "template": {"spec": pod}}],
            "volumes": [volume],
            "failurePolicy": {"evidenceSeconds": 2, "maxRestarts": 5},
        },
    }
