"""Nothing of a container node outlives it, and nothing of its cluster outlives whoever started that."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.containers import cgroups
from devcluster.containers.node import ContainerNodeSettings
from devcluster.images.build import Images
from devcluster.node.testing import Client, Pods, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.kubelets]


def processes(marker: str) -> list[int]:
    """Processes of this machine, in whatever namespace, whose command line has the marker."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue
            if marker in line and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


def test_a_node_without_power_and_a_killed_supervisor_leave_no_process_behind(
    tmp_path: Path, container_images: Path
) -> None:
    cluster = Cluster.start(tmp_path / "cluster", private_network=True)
    try:
        nodes = cluster.container_nodes
        nodes.start(2, ContainerNodeSettings(images=container_images, labels={"which": "any"}))
        cluster.create_namespace("here")
        client = Client(cluster)
        pods = Pods(client, "here", {"which": "any"}, Images().operator_reference)
        marker = f"nothing-outlives-{os.getpid()}"
        for name in ("container-1", "container-2"):
            pods.create(name, "python3", "-c", "import time; time.sleep(1000)", marker, nodeName=name)
            pods.wait(name, "Running")
        client.close()
        assert len(processes(marker)) == 2

        nodes["container-1"].power_off()

        eventually(lambda: len(processes(marker)) == 1, "the node's pod is gone, the other's goes on")
        supervisor = next(iter(processes(f"devcluster.supervisor\0{cluster.directory}\0")))
        os.kill(supervisor, signal.SIGKILL)
        eventually(lambda: not processes(marker) and not processes(str(cluster.directory)), "everything is gone")
        cgroups.remove(cgroups.left_behind())
        assert not [group for group in cgroups.left_behind() if str(supervisor) in group]
    finally:
        cluster.stop()
