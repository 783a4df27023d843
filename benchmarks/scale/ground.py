"""Where a benchmark stands: a control plane, nodes, and an operator as the chart runs it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from benchmarks.scale.api import Admin, Json
from devcluster.cluster import Cluster
from devcluster.ports import free_port
from tests.installing import SYSTEM, install

CONTROLLERS, SCHEDULER = "kube-controller-manager", "kube-scheduler"
CORE: Final = "/api/v1"
JOBS: Final = "/apis/meshwright.dev/v1alpha1"
_PEER: Final = "--concurrent-job-syncs=20"
_GRACE_SECONDS: Final = 600
"""Where thousands of pods start at once on two cores, nodes that are well cannot say so for minutes."""
_NO_LIFECYCLE: Final = "--controllers=*,-node-lifecycle-controller"
"""Nodes that are only objects renew no Lease and would be called lost."""


@dataclass
class Ground:
    """A cluster with TrainingJobs installed."""

    cluster: Cluster
    admin: Admin
    kubeconfig: Path
    """Of the operator's service account."""

    async def namespace(self, name: str) -> None:
        """Makes a namespace in which pods can be created."""
        await asyncio.to_thread(self.cluster.create_namespace, name)

    async def nodes(self, count: int, *, gpus: int = 8) -> None:
        """Makes nodes that are only objects: ready for ever, and nothing runs on them."""
        made = [a_node(i, gpus) for i in range(count)]
        await self.admin.create_all(f"{CORE}/nodes", (json.dumps(node).encode() for node in made))
        # Admission calls every new node not ready; who would take that back is turned off.
        ready = b'{"spec":{"taints":null}}'
        await self.admin.patch_all((f"{CORE}/nodes/{node['metadata']['name']}", ready) for node in made)

    async def fake_nodes(self, count: int) -> None:
        """Starts a program that plays so many large nodes; waits until they are ready."""
        start = partial(self.cluster.start_nodes, "fake", count, cpus="64", memory="256Gi", heartbeat_seconds=10.0)
        await asyncio.to_thread(start, ready_seconds=300.0)

    @asynccontextmanager
    async def operator(self, **flags: object) -> AsyncIterator[Operator]:
        """Runs an operator, from the moment that it leads."""
        operator = Operator(self.kubeconfig, self.cluster.directory, flags)
        try:
            await operator.leads()
            yield operator
        finally:
            operator.end()
            # Its Lease would keep the next one waiting.
            await self.admin.call("PATCH", _LEASE, b'{"spec":{"holderIdentity":""}}', "application/merge-patch+json")


_LEASE: Final = f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/meshwright-operator"


@asynccontextmanager
async def ground(*, audit: bool = False, nodes_live: bool = False) -> AsyncIterator[Ground]:
    """A fresh cluster for one figure.

    Args:
        audit: whether the API server keeps its log.
        nodes_live: whether there will be programs that play nodes, and not objects alone.
    """
    controllers = (_PEER,) if nodes_live else (_PEER, _NO_LIFECYCLE)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        cluster = await asyncio.to_thread(
            Cluster.start,
            Path(folder) / "cluster",
            audit=audit,
            extra_arguments={CONTROLLERS: controllers},
            node_monitor_grace_seconds=_GRACE_SECONDS,
        )
        with cluster:
            kubeconfig = await asyncio.to_thread(install, cluster)
            async with Admin(cluster) as admin:
                yield Ground(cluster, admin, kubeconfig)


class Operator:
    """The operator's process."""

    def __init__(self, kubeconfig: Path, folder: Path, flags: dict[str, object]) -> None:
        self._port = free_port()
        settings = {
            "kubeconfig": kubeconfig,
            "lease_namespace": SYSTEM,
            "bind_address": "127.0.0.1",
            "metrics_port": self._port,
            "liveness_port": 0,
            "heartbeat_port": 0,
            **flags,
        }
        argv = [sys.executable, "-m", "meshwright", *(f"--{k.replace('_', '-')}={v}" for k, v in settings.items())]
        self.log = folder / "operator.log"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    async def leads(self, seconds: float = 120.0) -> None:
        """Waits until it holds the Lease and has read everything once.

        Raises:
            RuntimeError: it ended.
            TimeoutError: it does not lead in time.
        """
        for _ in range(int(seconds / 0.05)):
            if self._process.poll() is not None:
                raise RuntimeError(f"the operator ended: {self.log.read_text()[-2000:]}")
            if "meshwright_leader 1.0" in await self.metrics():
                return
            await asyncio.sleep(0.05)
        raise TimeoutError(f"the operator does not lead: {self.log.read_text()[-2000:]}")

    async def metrics(self) -> str:
        """Its metrics; empty before it serves them."""

        def read() -> str:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=10) as answer:
                    return str(answer.read().decode())
            except OSError as error:
                # Refused: it does not listen yet. That it answers with an error is no figure of ours to hide.
                if isinstance(error, urllib.error.HTTPError):
                    raise
                return ""

        return await asyncio.to_thread(read)

    def peak_mib(self) -> float:
        """The most memory that it ever had."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None, "the kernel tells every process's peak"
        return int(found[1]) / 1024

    def end(self) -> None:
        """SIGTERM, then no patience."""
        self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def a_node(index: int, gpus: int) -> Json:
    """A node of a fat tree."""
    name = f"node-{index:05}"
    labels = {
        "kubernetes.io/hostname": name,
        "fabric.topograph.run/tier-2": "core",
        "fabric.topograph.run/tier-1": f"spine-{index // 320}",
        "fabric.topograph.run/tier-0": f"leaf-{index // 16}",
        "accelerator.topograph.run/domain": name,
    }
    offered = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": offered,
            "allocatable": offered,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def a_template(*, kilobytes: float = 0.0, **resources: str) -> Json:
    """A pod template with requests, and as much text as asked for."""
    container: Json = {"name": "trainer", "image": "none", "command": ["train"], "resources": {"requests": resources}}
    if kilobytes:
        # In one piece: every variable of its own would come back threefold in the server's managedFields.
        container["env"] = [{"name": "SETTINGS", "value": "x" * int(kilobytes * 1000)}]
    return {"spec": {"containers": [container]}}


def a_job(name: str, pods: int, *, gpus: int = 0, template: Json | None = None, **spec: Any) -> Json:
    """A TrainingJob of one role."""
    role: Json = {"name": "worker", "replicas": pods, "template": template or a_template(cpu="100m")}
    if gpus:
        role["gpusPerPod"] = gpus
    return {
        "apiVersion": "meshwright.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name},
        "spec": {"roles": [role], **spec},
    }
