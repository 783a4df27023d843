"""`ContainerNodes`: the container nodes of one cluster, and what they share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from devcluster import supervisor
from devcluster.containers import cgroups, configuration, network
from devcluster.containers.commands import python_environment, run
from devcluster.containers.node import ContainerNode, ContainerNodeSettings
from devcluster.containers.requirements import NodePrograms, find_node_programs
from devcluster.containers.users import DNS_USER
from devcluster.errors import ApiError
from devcluster.settings import Layout

Request = Callable[..., Any]
"""`Cluster.request`."""
FORWARD, DNS = "forward", "coredns"


def prepare_network(keeper: supervisor.Client, layout: Layout, ports: Sequence[int]) -> None:
    """Makes the cluster's network, and its ports reachable from the network of this process.

    Raises:
        CommandError: A command of the network failed.
    """
    pid = keeper.call("status")["pid"]
    cgroups.remove(cgroups.left_behind())
    for command in network.cluster_commands():
        run([*network.in_namespaces_of(pid, "net"), *command])
    argv = [
        sys.executable,
        "-P",
        "-m",
        "devcluster.containers.forward",
        f"/proc/{os.getpid()}/ns/net",
        *map(str, ports),
    ]
    log = layout.log(FORWARD)
    keeper.call("spawn", name=FORWARD, argv=argv, env=python_environment(), log=str(log), grace=0.0)


class ContainerNodes:
    """Starts nodes one after another and finds them by name."""

    def __init__(self, keeper: supervisor.Client, layout: Layout, request: Request) -> None:
        self._keeper, self._layout, self._request = keeper, layout, request
        self._programs: NodePrograms = find_node_programs()
        self._nodes: dict[str, ContainerNode] = {}

    def start(self, count: int, settings: ContainerNodeSettings) -> None:
        """Starts DNS, if it does not run, and `count` more nodes; returns when all are Ready.

        Raises:
            StartError: One was not ready in time; the message has the end of a log.
        """
        if DNS not in self._keeper.call("status")["programs"]:
            self._start_dns()
        for _ in range(count):
            node = ContainerNode(self._layout, self._keeper, self._programs, len(self._nodes) + 1)
            self._nodes[node.name] = node
            node.start(settings, partial(self._is_ready, node.name))
            if settings.gpus:
                capacity = {"status": {"capacity": {"nvidia.com/gpu": str(settings.gpus)}}}
                self._request("PATCH", f"/api/v1/nodes/{node.name}/status", capacity)

    def __getitem__(self, name: str) -> ContainerNode:
        """The node of that name."""
        return self._nodes[name]

    def __iter__(self) -> Iterator[ContainerNode]:
        return iter(self._nodes.values())

    def run_in_cluster_network(self, *command: str) -> str:
        """Runs a command in the network that the control plane is in: it reaches nodes, pods and their names.

        Raises:
            CommandError: It failed.
        """
        return run([*self.network_prefix(), *command])

    def network_prefix(self) -> Sequence[str]:
        """What to put before a command so that it runs in the network that the control plane is in."""
        return network.in_namespaces_of(self._keeper.call("status")["pid"], "net")

    def _is_ready(self, name: str) -> bool:
        try:
            conditions = self._request("GET", f"/api/v1/nodes/{name}")["status"].get("conditions", ())
        except ApiError:
            return False
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    def _start_dns(self) -> None:
        file = self._layout.directory / "Corefile"
        file.write_text(configuration.dns(self._layout.kubeconfig(DNS_USER)))
        argv = [str(self._programs.coredns), f"-conf={file}"]
        log = str(self._layout.log(DNS))
        self._keeper.call("spawn", name=DNS, argv=argv, env={"PATH": os.defpath}, log=log, grace=0.0)


def remove_files(layout: Layout, keeper_pid: int) -> None:
    """Removes what the nodes of a cluster that has ended left on disk and among the control groups."""
    for folder in layout.directory.glob("container-[1-9]"):
        cgroups.remove([cgroups.name(keeper_pid, folder.name)])
        run(["rm", "-rf", "--one-file-system", str(folder)])
