"""Two processes of the example's training script, told who they are as a launcher tells them."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from devcluster.ports import free_port

SMALLEST_PIPE = 4096
"""So that rank 0, which logs each step, cannot run more than about 50 steps ahead of its reader."""
DEADLINE = 240.0


class Zygote:
    """The process that forks the script; everything it started ends with it."""

    def __init__(self, example: Path) -> None:
        env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(example)}
        program = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
        self._process = subprocess.Popen(program, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, order: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def close(self) -> None:
        with self._process:
            self._process.kill()


@dataclass
class Ended:
    """What a gang left: exit codes, the JSON lines of rank 0, what each rank wrote to standard error."""

    codes: list[int]
    lines: list[dict[str, Any]]
    errors: list[str]

    def event(self, name: str) -> dict[str, Any]:
        [found] = [line for line in self.lines if line.get("event") == name]
        return found

    @property
    def losses(self) -> dict[int, float]:
        return {line["step"]: line["loss"] for line in self.lines if "loss" in line}


@dataclass
class Gang:
    """Runs on checkpoints in `folder`; its own files lie in `files`."""

    zygote: Zygote
    folder: Path
    files: Path
    arguments: list[str]
    pids: list[int] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    _output: TextIO | None = None

    def start(self) -> Gang:
        self.files.mkdir()
        os.mkfifo(self._file(0, "out"))
        self._file(1, "out").touch()
        reading = os.open(self._file(0, "out"), os.O_RDONLY | os.O_NONBLOCK)
        fcntl.fcntl(reading, fcntl.F_SETPIPE_SZ, SMALLEST_PIPE)
        port = str(free_port())
        for rank in (0, 1):
            env = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            order = {
                "arguments": ["--checkpoints", str(self.folder), *self.arguments],
                "env": env,
                "stdout": str(self._file(rank, "out")),
                "stderr": str(self._file(rank, "err")),
            }
            self.pids.append(self.zygote.ask({"start": order})["pid"])
        os.set_blocking(reading, True)
        self._output = os.fdopen(reading)
        return self

    def until_step(self, step: int) -> None:
        assert self._output
        for line in self._output:
            self.lines.append(json.loads(line))
            if "loss" in self.lines[-1] and self.lines[-1]["step"] >= step:
                return
        raise AssertionError(f"ended before step {step}: {self.ended().errors}")

    def signal(self, rank: int, number: signal.Signals) -> None:
        os.kill(self.pids[rank], number)

    def ended(self) -> Ended:
        assert self._output
        self.lines += [json.loads(line) for line in self._output]
        codes = [self.zygote.ask({"wait": pid, "seconds": DEADLINE})["code"] for pid in self.pids]
        self.pids.clear()
        self.close()
        return Ended(codes, self.lines, [self._file(rank, "err").read_text() for rank in (0, 1)])

    def close(self) -> None:
        for pid in self.pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._output:
            self._output.close()

    def _file(self, rank: int, name: str) -> Path:
        return self.files / f"rank-{rank}.{name}"
