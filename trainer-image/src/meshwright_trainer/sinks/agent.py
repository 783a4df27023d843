"""Progress for the pod's agent, which carries it into the job's status.

One JSON object per datagram on the socket that MESHWRIGHT_AGENT_SOCKET names. A lost datagram is a late figure, nothing
more, so nothing here waits or fails.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from pathlib import Path

from meshwright_trainer.sinks.base import Record

SOCKET_VARIABLE = "MESHWRIGHT_AGENT_SOCKET"
"""Path of the agent's socket."""
_NAMES = {"loss": "loss", "tokens_per_second": "tokensPerSecond", "mfu": "mfu", "eta_seconds": "etaSeconds"}


class AgentSocket:
    """Sends each record to the agent."""

    def __init__(self, path: Path, steps: int) -> None:
        self._path, self._steps = str(path), steps
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def write(self, record: Record) -> None:
        """Sends one datagram, or loses it."""
        if record.event == "checkpoint":
            message: dict[str, object] = {"checkpoint": {"step": record.step, "time": int(time.time())}}
        else:
            message = {"step": record.step, "steps": self._steps, "phase": record.event}
            message |= {ours: record.values[name] for name, ours in _NAMES.items() if name in record.values}
        with contextlib.suppress(OSError):
            self._socket.sendto(json.dumps(message).encode(), self._path)

    def close(self) -> None:
        """Closes our end."""
        self._socket.close()
