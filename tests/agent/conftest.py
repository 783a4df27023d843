from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from meshwright_agent.archive import install

Json = dict[str, Any]


@pytest.fixture(scope="session")
def pyz(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The agent as pods have it."""
    path = tmp_path_factory.mktemp("agent") / "agent.pyz"
    install(str(path))
    return path


def a_plan(**changes: Any) -> Json:
    """A launch plan: one worker role with one pod of one process, unless changed."""
    replicas, processes = changes.pop("replicas", 1), changes.pop("processes", 1)
    plan = {
        "version": 1,
        "minReader": 1,
        "job": {"name": "gpt", "namespace": "team", "uid": "0f66-7faf"},
        "attempt": 3,
        "incarnation": 2,
        "roles": [
            {
                "name": "worker",
                "replicas": replicas,
                "processesPerPod": processes,
                "firstRank": 0,
                "hostPattern": "gpt-abcde-worker-{index}-{incarnation}",
            }
        ],
        "worldSize": replicas * processes,
        "rendezvous": {"id": "0f66-7faf-2", "host": "gpt-abcde-worker-0-2.gpt-abcde", "port": 29400},
        "heartbeat": None,
    }
    return plan | changes


class Run:
    """An agent in a process of its own, as kubelets start it."""

    def __init__(self, popen: subprocess.Popen[str]) -> None:
        self.popen = popen
        self.out = self.err = ""

    def until_it_says(self, word: str) -> None:
        """Reads its standard output up to a line with that word."""
        assert self.popen.stdout is not None
        while word not in (line := self.popen.stdout.readline()):
            assert line, f"it ended without saying {word!r}: {self.out}"
            self.out += line
        self.out += line

    def signal(self, number: int) -> None:
        self.popen.send_signal(number)

    def wait(self, within: float = 15.0) -> int:
        """Its exit code."""
        out, self.err = self.popen.communicate(timeout=within)
        self.out += out
        return self.popen.returncode

    @property
    def last_words(self) -> Json:
        """The last line of its standard error."""
        words: Json = json.loads(self.err.splitlines()[-1])
        return words


@pytest.fixture
def start(pyz: Path, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Starts the agent with a command, under a plan and variables of its pod."""
    runs: list[Run] = []

    def begin(*command: str, plan: Json | None = None, index: int = 0, **variables: str) -> Run:
        path = tmp_path / "plan.json"
        path.write_text(json.dumps(plan or a_plan()))
        environment = {
            "PATH": os.environ["PATH"],
            "MESHWRIGHT_PLAN": str(path),
            "MESHWRIGHT_ROLE": "worker",
            "MESHWRIGHT_INDEX": str(index),
            "MESHWRIGHT_INCARNATION": "2",
            **variables,
        }
        popen = subprocess.Popen(
            [sys.executable, "-I", "-S", str(pyz), "run", "--", *command],
            env={name: value for name, value in environment.items() if value},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        runs.append(Run(popen))
        return runs[-1]

    yield begin
    for run in runs:
        if run.popen.poll() is None:
            run.signal(signal.SIGKILL)
            run.wait()
        for stream in (run.popen.stdout, run.popen.stderr):
            assert stream is not None
            stream.close()


def alive(pid: int) -> bool:
    """Whether a process exists and is no zombie."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def soon(condition: Callable[[], bool], within: float = 10.0) -> bool:
    """Whether a condition comes true in time."""
    deadline = time.monotonic() + within
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
