"""The node program as the cluster sees it: its command line, and a handle."""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from devcluster.access import NODES
from devcluster.controlplane import tail
from devcluster.errors import StartError
from devcluster.settings import Layout
from devcluster.supervisor import Client

Mode = Literal["process", "fake"]
_STOP_SECONDS = 15.0  # to end its pods on SIGTERM, before it is killed


@dataclass(frozen=True)
class NodeSettings:
    """The nodes that one node program plays.

    Attributes:
        mode: `process` runs pods as local processes, `fake` only pretends to.
        count: How many nodes.
        name_prefix: Nodes are named PREFIX-0, PREFIX-1, ...
        cpus: CPUs that each node offers.
        memory: Memory that each node offers.
        pods: Pods that each node takes.
        gpus: `nvidia.com/gpu` that each node offers.
        labels: Labels of each node.
        heartbeat_seconds: How often each node renews its Lease.
    """

    mode: Mode = "process"
    count: int = 2
    name_prefix: str = "node"
    cpus: str = "2"
    memory: str = "4Gi"
    pods: int = 110
    gpus: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    heartbeat_seconds: float = 2.0

    def command(self, layout: Layout, state: Path) -> list[str]:
        """The command line of the node program."""
        return [
            sys.executable,
            "-P",
            "-m",
            "devcluster.node",
            f"--kubeconfig={layout.kubeconfig(NODES)}",
            f"--mode={self.mode}",
            f"--count={self.count}",
            f"--name-prefix={self.name_prefix}",
            f"--cpus={self.cpus}",
            f"--memory={self.memory}",
            f"--pods={self.pods}",
            f"--gpus={self.gpus}",
            *(f"--label={key}={value}" for key, value in self.labels.items()),
            f"--state-dir={state}",
            f"--heartbeat-seconds={self.heartbeat_seconds}",
            f"--tls-cert={layout.pki}/node.crt",
            f"--tls-key={layout.pki}/node.key",
            f"--client-ca={layout.ca}",
        ]


class NodeProgram:
    """One running node program."""

    def __init__(self, client: Client, name: str, pid: int, log: Path) -> None:
        self._client = client
        self.name, self.pid, self.log = name, pid, log

    @classmethod
    def start(
        cls, client: Client, layout: Layout, settings: NodeSettings, env: Mapping[str, str], timeout: float
    ) -> NodeProgram:
        """Starts it and waits until it says that all its nodes are Ready.

        Raises:
            StartError: It ended, or was not ready in time; the message has the end of its log.
        """
        name = f"node-program-{settings.name_prefix}"
        state, log = layout.directory / name, layout.log(name)
        state.mkdir(mode=0o700, exist_ok=True)
        log.unlink(missing_ok=True)
        answer = client.call(
            "spawn", name=name, argv=settings.command(layout, state), env=dict(env), log=str(log), grace=_STOP_SECONDS
        )
        program = cls(client, name, answer["pid"], log)
        program._wait_ready(timeout)
        return program

    def returncode(self) -> int | None:
        """None while it runs, else its exit status (negative: the signal that ended it)."""
        return self._client.returncode(self.name)

    def signal(self, number: int) -> None:
        """Sends it a signal; SIGKILL is what a node sees when its machine loses power."""
        self._client.call("signal", name=self.name, number=number)

    def stop(self) -> None:
        """Has it end its pods and itself; kills it if it does not within 15 s."""
        self.signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        while self.returncode() is None:
            if time.monotonic() > deadline:
                self.signal(signal.SIGKILL)
            time.sleep(0.05)

    def _wait_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while "ready" not in self.log.read_text(errors="replace").splitlines():
            code = self.returncode()
            if code is not None or time.monotonic() > deadline:
                what = f"ended with {code}" if code is not None else f"was not ready in {timeout:.0f} s"
                if code is None:
                    self.signal(signal.SIGKILL)
                raise StartError(f"{self.name} {what}:\n{tail(self.log)}")
            time.sleep(0.05)
