"""The operator as a process of its own, as the chart would run it but on this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

FAST: Mapping[str, object] = {
    "lease-duration-seconds": 3,
    "lease-renew-deadline-seconds": 2,
    "lease-retry-seconds": 0.4,
    "resync-seconds": 5,
    "node-lost-seconds": 1,
    "retry-cap-seconds": 2,
    "metrics-port": 0,
    "heartbeat-port": 0,
    "liveness-port": 0,
    "bind-address": "127.0.0.1",
    "log-format": "text",
}
"""Settings of the chart, shortened where a test would wait for them."""


class Operator:
    """One operator process; `kill` and `start` it as often as a test needs."""

    def __init__(self, kubeconfig: Path, folder: Path, lease_namespace: str, **settings: object) -> None:
        self._folder = folder
        self.log = folder / "operator.log"
        fast = {**FAST, **{name.replace("_", "-"): value for name, value in settings.items()}}
        self._argv = [
            sys.executable,
            "-m",
            "meshwright",
            f"--kubeconfig={kubeconfig}",
            f"--lease-namespace={lease_namespace}",
            f"--decision-log-dir={folder}",
            *(f"--{name}={value}" for name, value in fast.items()),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """The running process."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Starts it; it takes part in nothing before it holds the lease."""
        assert self._process is None
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=os.environ
            )

    def kill(self) -> None:
        """SIGKILL: it gives nothing up and says nothing."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """SIGTERM; returns its exit code."""
        return self._end(signal.SIGTERM)

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.poll() is None

    def _end(self, number: int) -> int:
        assert self._process is not None
        self._process.send_signal(number)
        try:
            code = self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        self._process = None
        return code
