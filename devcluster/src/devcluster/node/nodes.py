"""Node objects and their heartbeats."""

from __future__ import annotations

import asyncio
import logging
import platform
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from devcluster.node import clock
from devcluster.node.api import MERGE, STRATEGIC, Api, Object, until_answered
from devcluster.node.errors import ApiError, ApiUnreachable
from devcluster.node.settings import Settings

LOST_ANNOTATION: Final = "fake.devcluster/lost"
ADDRESS: Final = "127.0.0.1"  # of every node: they are one machine, and this is what its certificate names
MODE_LABEL: Final = "devcluster/mode"
NOT_READY_TAINT: Final = "node.kubernetes.io/not-ready"
KUBELET_VERSION: Final = "v1.34.4"  # controllers compare it with the API server's
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_MOST_HEARTBEATS_PER_SECOND: Final = 100
_PRESSURES: Final = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
_ARCHITECTURES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class NodeIdentity:
    """What tells one Node of this program from another, and where it is reached."""

    name: str
    address: str
    log_port: int
    capacity: Mapping[str, str]
    labels: Mapping[str, str]
    mode: str


def identities(settings: Settings, log_port: int) -> list[NodeIdentity]:
    """The Nodes that the settings ask for."""
    capacity = {"cpu": settings.cpus, "memory": settings.memory, "pods": str(settings.pods)}
    capacity |= {"ephemeral-storage": "100Gi"} | ({"nvidia.com/gpu": str(settings.gpus)} if settings.gpus else {})
    return [
        NodeIdentity(f"{settings.name_prefix}-{index}", ADDRESS, log_port, capacity, settings.labels, settings.mode)
        for index in range(settings.count)
    ]


def heartbeat_interval(wanted: float, nodes: int) -> float:
    """Seconds between two heartbeats of a Node; longer than wanted where that would be too many writes.

    The control plane's `--node-monitor-grace-period` must be several times as long.
    """
    return max(wanted, nodes / _MOST_HEARTBEATS_PER_SECOND)


def node_object(node: NodeIdentity) -> dict[str, Any]:
    """The Node as it is registered."""
    arch = _ARCHITECTURES.get(platform.machine(), platform.machine())
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
        MODE_LABEL: node.mode,
        **node.labels,
    }
    metadata = {"name": node.name, "labels": labels}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": _status(node)}


def _status(node: NodeIdentity) -> dict[str, Any]:
    return {
        "capacity": dict(node.capacity),
        "allocatable": dict(node.capacity),
        "conditions": conditions(clock.now()),
        # The API server tries the address of type Hostname first when it fetches a log, so that must be an address too.
        "addresses": [{"type": "InternalIP", "address": node.address}, {"type": "Hostname", "address": node.address}],
        **({"daemonEndpoints": {"kubeletEndpoint": {"Port": node.log_port}}} if node.log_port else {}),
        "nodeInfo": {
            "machineID": node.name, "systemUUID": node.name, "bootID": "", "operatingSystem": "linux",
            "architecture": _ARCHITECTURES.get(platform.machine(), platform.machine()),
            "kernelVersion": platform.release(), "osImage": f"dev cluster, {node.mode} node",
            "containerRuntimeVersion": f"{node.mode}://1", "kubeletVersion": KUBELET_VERSION,
            "kubeProxyVersion": KUBELET_VERSION,
        },
    }  # fmt: skip


def conditions(now: str) -> list[dict[str, str]]:
    """The conditions of a Node that is well."""
    states = [(kind, "False", reason, message) for kind, reason, message in _PRESSURES]
    states.append(("Ready", "True", "KubeletReady", "kubelet is posting ready status"))
    return [
        {"type": kind, "status": status, "reason": reason, "message": message, "lastHeartbeatTime": now,
         "lastTransitionTime": now}
        for kind, status, reason, message in states
    ]  # fmt: skip


@dataclass
class NodeKeeper:
    """Keeps one Node alive in the API server.

    While the Node carries the annotation `fake.devcluster/lost` it is off line: nothing is sent for it.
    """

    api: Api
    node: NodeIdentity
    interval: float
    writes: asyncio.Semaphore
    on_line: asyncio.Event = field(default_factory=asyncio.Event)
    exists: asyncio.Event = field(default_factory=asyncio.Event)
    usable: asyncio.Event = field(default_factory=asyncio.Event)
    _uid: str = ""
    _repair: asyncio.Task[None] | None = None

    async def register(self) -> None:
        """Creates the Node and its Lease, or makes those that are there ours."""

        async def once() -> Object:
            async with self.writes:
                return await self.api.request("POST", "/api/v1/nodes", node_object(self.node))

        try:
            created = await until_answered(once)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            created = await self._take_over()
        self._uid = created["metadata"]["uid"]
        self.observe(created)

    async def heartbeats(self) -> None:
        """Renews the Lease until cancelled; a renewal that fails is simply followed by the next."""
        await asyncio.sleep(random.uniform(0, self.interval))  # so that many nodes spread their writes
        while True:
            await self.on_line.wait()
            await self.exists.wait()
            try:
                await self._renew()
            except (ApiError, ApiUnreachable) as error:
                _log.info("heartbeat of %s: %s", self.node.name, error)
            await asyncio.sleep(self.interval)

    def observe(self, node: Object) -> None:
        """Takes note of the Node as the API server has it."""
        self.exists.set()
        annotations = node["metadata"].get("annotations") or {}
        if annotations.get(LOST_ANNOTATION) == "true":
            self.on_line.clear()
        else:
            self.on_line.set()
        taints = {one["key"] for one in node["spec"].get("taints") or ()}
        states = {one["type"]: one["status"] for one in node["status"].get("conditions") or ()}
        if states.get("Ready") == "True":
            if NOT_READY_TAINT not in taints:
                self.usable.set()
        elif self.on_line.is_set() and (self._repair is None or self._repair.done()):
            self._repair = asyncio.create_task(self._say_ready())

    def forget(self) -> None:
        """The Node was deleted. As with a kubelet it stays so until the program starts again; its pods are ended."""
        self.exists.clear()

    async def _take_over(self) -> Object:
        path, wanted = f"/api/v1/nodes/{self.node.name}", node_object(self.node)

        async def once() -> Object:
            async with self.writes:
                labels = {"metadata": {"labels": wanted["metadata"]["labels"]}}
                await self.api.request("PATCH", path, labels, content_type=MERGE)
                status = {"status": wanted["status"]}
                return await self.api.request("PATCH", path + "/status", status, content_type=STRATEGIC)

        return await until_answered(once)

    async def _say_ready(self) -> None:
        """After an absence the Node controller has set Ready to Unknown; only the node itself sets it back."""

        async def once() -> None:
            await self.on_line.wait()
            async with self.writes:
                body = {"status": {"conditions": conditions(clock.now())}}
                await self._renew()
                await self.api.request("PATCH", f"/api/v1/nodes/{self.node.name}/status", body, content_type=STRATEGIC)

        try:
            await until_answered(once)
        except ApiError as error:
            _log.warning("status of node %s: %s", self.node.name, error)

    async def _renew(self) -> None:
        path = f"{_LEASES}/{self.node.name}"
        body: dict[str, Any] = {"spec": {"renewTime": clock.precise_now()}}
        try:
            await self.api.request("PATCH", path, body, content_type=MERGE)
        except ApiError as error:
            if error.status != 404:
                raise
            owner = {"apiVersion": "v1", "kind": "Node", "name": self.node.name, "uid": self._uid}
            body["metadata"] = {"name": self.node.name, "ownerReferences": [owner]}
            body["spec"] |= {"holderIdentity": self.node.name, "leaseDurationSeconds": 40}
            await self.api.request("POST", _LEASES, body)
