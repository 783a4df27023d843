"""Several processes on one machine, as `train --processes N` starts them.

torchrun would do, but answers a job that cannot be with a page of its own frames, a request to stop with exit code 1,
and gives no process more than 30 seconds to keep a checkpoint.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Final

_LOOK_SECONDS: Final = 0.05
_PATIENCE_SECONDS: Final = 20.0
"""How long the others may take to end by themselves once one has failed: they may say more of the cause."""


def run_processes(words: Sequence[str], count: int, environment: Mapping[str, str] = os.environ) -> int:
    """Runs a command once for each rank and returns the first exit code that is not 0, a signal's as 128 + its number.

    SIGTERM is passed on; SIGINT reaches the processes from the terminal itself. When one process has failed, the
    others are stopped.
    """
    shared = {
        # With more threads than cores every process would wait for the others.
        "OMP_NUM_THREADS": "1",
        **environment,
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_free_port()),
    }
    processes: list[subprocess.Popen[bytes]] = []
    asked: list[int] = []

    def pass_on(number: int, _frame: FrameType | None) -> None:
        asked.append(number)
        for process in processes:
            process.send_signal(number)

    before = signal.signal(signal.SIGTERM, pass_on), signal.signal(signal.SIGINT, lambda *_: None)
    try:
        for rank in range(count):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            processes.append(subprocess.Popen(words, env={**shared, **own}))
        if asked:  # while they were being started
            pass_on(asked[0], None)
        return _outcome(processes)
    finally:
        for process in processes:
            process.kill()
            process.wait()
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def train_words(job: str, overrides: Sequence[str]) -> list[str]:
    """The command of one rank."""
    words = [sys.executable, "-m", "meshwright_trainer", "train", job]
    return words + [word for override in overrides for word in ("--set", override)]


def _outcome(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    first = 0
    deadline: float | None = None
    while any(process.poll() is None for process in processes):
        if not first and (first := _failed(processes)):
            deadline = time.monotonic() + _PATIENCE_SECONDS
        if deadline is not None and time.monotonic() > deadline:
            break
        time.sleep(_LOOK_SECONDS)
    return first or _failed(processes)


def _failed(processes: Sequence[subprocess.Popen[bytes]]) -> int:
    """The first exit code that is not 0 among the processes that have ended."""
    codes = (process.poll() or 0 for process in processes)
    return next((128 - code if code < 0 else code for code in codes if code), 0)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port
