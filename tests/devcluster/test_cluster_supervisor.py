"""No process outlives its cluster: the supervisor alone, with small programs in place of a control plane."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devcluster.errors import DevClusterError, NotRunningError
from devcluster.supervisor import Client

SLEEP = [sys.executable, "-c", "import time; time.sleep(600)"]
# A program with a child of its own, whose pid it writes down.
PARENT = """
import pathlib, subprocess, sys, time
pathlib.Path(sys.argv[1]).write_text(str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid))
time.sleep(600)
"""
CLEAN = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (pathlib.Path(sys.argv[1]).touch(), sys.exit()))
print("up", flush=True)
time.sleep(600)
"""
STUBBORN = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
time.sleep(600)
"""
KEEPER = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-P", "-m", "devcluster.supervisor", sys.argv[1], str(os.getpid()), *sys.argv[2:]])
time.sleep(600)
"""


def eventually(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Keeper:
    """A process that starts a supervisor, as a cluster's user does, and can be killed."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.process = subprocess.Popen([sys.executable, "-c", KEEPER, str(directory), *options])
        self.client = Client(directory)
        eventually(self.serves)
        self.supervisor: int = self.client.call("status")["pid"]

    def serves(self) -> bool:
        try:
            return bool(self.client.call("status"))
        except NotRunningError:
            return False

    def spawn(self, name: str, argv: list[str], grace: float = 0.0) -> int:
        pid: int = self.client.call(
            "spawn", name=name, argv=argv, env=None, log=str(self.directory / f"{name}.log"), grace=grace
        )["pid"]
        return pid

    def spawn_with_child(self, name: str) -> tuple[int, int]:
        file = self.directory / f"{name}.child"
        parent = self.spawn(name, [sys.executable, "-c", PARENT, str(file)])
        eventually(lambda: file.exists() and file.read_text())
        return parent, int(file.read_text())

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        eventually(lambda: not alive(self.supervisor))


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[Keeper]:
    keeper = Keeper(tmp_path)
    yield keeper
    keeper.end()


def test_all_end_when_the_parent_is_killed(keeper: Keeper) -> None:
    plain = keeper.spawn("plain", SLEEP)
    parent, child = keeper.spawn_with_child("parent")

    keeper.process.kill()
    keeper.process.wait()

    eventually(lambda: not any(map(alive, (plain, parent, child, keeper.supervisor))))
    assert not keeper.serves()


def test_programs_end_when_the_supervisor_itself_is_killed(keeper: Keeper) -> None:
    plain = keeper.spawn("plain", SLEEP)

    os.kill(keeper.supervisor, signal.SIGKILL)

    eventually(lambda: not alive(plain))
    assert not alive(keeper.supervisor)


def test_children_of_a_killed_program_are_killed_at_once_and_others_go_on(keeper: Keeper) -> None:
    other = keeper.spawn("other", SLEEP)
    parent, child = keeper.spawn_with_child("parent")

    keeper.client.call("signal", name="parent", number=signal.SIGKILL)

    eventually(lambda: not alive(parent) and not alive(child))
    assert alive(other)
    assert keeper.client.call("status")["programs"]["parent"]["returncode"] == -signal.SIGKILL


def test_where_orphans_are_kept_they_outlive_their_program_but_not_the_supervisor(tmp_path: Path) -> None:
    keeper = Keeper(tmp_path, "--keep-orphans")
    parent, child = keeper.spawn_with_child("parent")

    keeper.client.call("signal", name="parent", number=signal.SIGKILL)

    eventually(lambda: keeper.client.returncode("parent") == -signal.SIGKILL)
    assert not alive(parent)
    assert alive(child), "as containers outlive the program that started them"
    keeper.end()
    eventually(lambda: not alive(child))


def test_detached_it_outlives_its_parent_until_told_to_end(keeper: Keeper) -> None:
    plain = keeper.spawn("plain", SLEEP)
    keeper.client.call("detach")
    keeper.process.kill()
    keeper.process.wait()
    eventually(lambda: Path(f"/proc/{keeper.supervisor}/stat").read_text().split()[3] != str(keeper.process.pid))
    assert keeper.client.call("status")["detached"]
    assert alive(plain)

    keeper.client.call("shutdown")

    eventually(lambda: not alive(plain) and not alive(keeper.supervisor))


def test_a_program_with_grace_may_finish_and_a_stubborn_or_stopped_one_is_killed(keeper: Keeper) -> None:
    done = keeper.directory / "done"
    pids = [
        keeper.spawn("clean", [sys.executable, "-c", CLEAN, str(done)], grace=10),
        keeper.spawn("stubborn", [sys.executable, "-c", STUBBORN], grace=0.3),
        keeper.spawn("stopped", SLEEP),
    ]
    keeper.client.call("signal", name="stopped", number=signal.SIGSTOP)
    eventually(lambda: all("up" in (keeper.directory / f"{name}.log").read_text() for name in ("clean", "stubborn")))

    keeper.client.call("shutdown")

    eventually(lambda: not any(map(alive, pids)))
    assert done.exists()


def test_a_name_runs_once_and_can_be_started_again_after_its_end(keeper: Keeper) -> None:
    first = keeper.spawn("plain", SLEEP)
    with pytest.raises(DevClusterError, match="plain runs already"):
        keeper.spawn("plain", SLEEP)
    keeper.client.call("signal", name="plain", number=signal.SIGTERM)
    eventually(lambda: not alive(first))

    second = keeper.spawn("plain", SLEEP)

    assert alive(second)
    assert keeper.client.call("status")["programs"]["plain"]["pid"] == second


def test_reserved_ports_are_given_to_nobody_else(keeper: Keeper) -> None:
    ports = keeper.client.call("reserve", ports=[0] * 5)["ports"]
    assert len(set(ports)) == 5

    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", ports[0]))
    with socket.socket() as member:
        member.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        member.bind(("127.0.0.1", ports[0]))
        member.listen()
        socket.create_connection(("127.0.0.1", ports[0]), timeout=5).close()


def test_a_long_directory_is_no_obstacle(tmp_path: Path) -> None:
    directory = tmp_path / ("long" * 40)
    directory.mkdir()
    keeper = Keeper(directory)
    try:
        assert keeper.client.call("status")["programs"] == {}
    finally:
        keeper.end()


def test_where_nothing_runs_the_client_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotRunningError, match="no cluster runs in"):
        Client(tmp_path).call("status")
    with pytest.raises(NotRunningError, match="no cluster runs in"):
        Client(tmp_path / "missing").call("status")
