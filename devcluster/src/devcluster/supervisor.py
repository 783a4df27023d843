"""The parent of every process of a cluster: `python -m devcluster.supervisor DIRECTORY PARENT-PID [--keep-orphans]`.

It exists so that nothing outlives the cluster, whatever ends it:

* It ends when its own parent is gone (looked up four times a second, so SIGKILL counts too),
  unless it was told to `detach`; when it gets SIGTERM; when it is told to `shutdown`.
* The programs it starts get SIGKILL from the kernel when it dies itself (PR_SET_PDEATHSIG).
* Descendants that lost their parent become its children (PR_SET_CHILD_SUBREAPER). They are killed
  when one of its programs has ended, since only then can they have lost their keeper; not so with
  `--keep-orphans`, as on a container node, where containers outlive kubelet and containerd.

It also holds the cluster's ports: each is bound, but not listened on, with SO_REUSEPORT, by which the
cluster's programs may share it while no other program is given it, even while the API server restarts.

One JSON document per connection over a Unix socket, answered by one; `Client` is the other side.
"""

from __future__ import annotations

import asyncio
import ctypes
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.errors import DevClusterError, NotRunningError
from devcluster.ports import hold

SOCKET = "supervisor.sock"
_LONGEST_REQUEST = 1 << 22  # an environment goes over the wire
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class _Program:
    process: subprocess.Popen[bytes]
    grace: float


class Supervisor:
    """Starts programs, says how they are, and takes all of them down."""

    def __init__(self, parent: int, keep_orphans: bool = False) -> None:
        self._parent: int | None = parent
        self._keep_orphans = keep_orphans
        self._programs: dict[str, _Program] = {}
        self._ports: list[socket.socket] = []
        self._over = asyncio.Event()

    async def run(self, directory: Path) -> None:
        """Serves until told to stop or left alone, then ends everything."""
        _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            loop.add_signal_handler(number, self._over.set)
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        os.chdir(directory)  # a relative name, because the path of a Unix socket is limited to 107 bytes
        with suppress(FileNotFoundError):
            os.unlink(SOCKET)
        mask = os.umask(0o177)
        server = await asyncio.start_unix_server(self._serve, SOCKET, limit=_LONGEST_REQUEST)
        os.umask(mask)
        while not self._over.is_set() and (self._parent is None or os.getppid() == self._parent):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._over.wait(), 0.25)
        server.close()
        await self._end_all()
        with suppress(FileNotFoundError):
            os.unlink(SOCKET)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = json.loads(await reader.readline())
            answer = getattr(self, "do_" + request.pop("do"))(**request)
        except Exception as error:  # the client raises it
            answer = {"error": f"{type(error).__name__}: {error}"}
        writer.write(json.dumps(answer).encode() + b"\n")
        with suppress(ConnectionError):
            await writer.drain()
        writer.close()

    def do_spawn(self, name: str, argv: list[str], env: dict[str, str], log: str, grace: float) -> dict[str, Any]:
        """Starts `argv`; a program of that name that has ended is replaced."""
        known = self._programs.get(name)
        if known and known.process.poll() is None:
            raise ValueError(f"{name} runs already")
        with open(log, "ab") as output:
            process = subprocess.Popen(
                argv, env=env, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                preexec_fn=lambda: _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
            )  # fmt: skip
        self._programs[name] = _Program(process, grace)
        return {"pid": process.pid}

    def do_signal(self, name: str, number: int) -> dict[str, Any]:
        """Sends a signal to a program by its name; its pid cannot have been given to another."""
        self._programs[name].process.send_signal(number)
        return {}

    def do_status(self) -> dict[str, Any]:
        """Every program ever started: its pid, and its exit status (negative: the signal) once it has one."""
        self._reap()
        return {
            "pid": os.getpid(),
            "detached": self._parent is None,
            "programs": {
                name: {"pid": program.process.pid, "returncode": program.process.returncode}
                for name, program in self._programs.items()
            },
        }

    def do_reserve(self, ports: list[int]) -> dict[str, Any]:
        """Takes ports of 127.0.0.1 for as long as the cluster lives; 0 stands for any that is free."""
        new = [hold(port) for port in ports]
        self._ports += new
        return {"ports": [sock.getsockname()[1] for sock in new]}

    def do_detach(self) -> dict[str, Any]:
        """From now on it outlives its parent."""
        self._parent = None
        return {}

    def do_shutdown(self) -> dict[str, Any]:
        """Begins to end; who wants to know when it is done waits for the process."""
        self._over.set()
        return {}

    def _reap(self) -> None:
        ended = [program for program in self._programs.values() if program.process.returncode is None]
        ended = [program for program in ended if program.process.poll() is not None]
        if ended and not self._keep_orphans:
            self._kill_adopted()
        self._wait_for_adopted()

    def _adopted(self) -> Iterable[int]:
        own = {program.process.pid for program in self._programs.values() if program.process.returncode is None}
        return [pid for pid in children_of(os.getpid()) if pid not in own]

    def _kill_adopted(self) -> None:
        for pid in self._adopted():  # children of ours, not yet waited for: the number is still theirs
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _wait_for_adopted(self) -> None:
        for pid in self._adopted():
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)

    def _running(self) -> list[_Program]:
        return [program for program in self._programs.values() if program.process.poll() is None]

    async def _end_all(self) -> None:
        started = time.monotonic()
        for program in self._running():
            program.process.send_signal(signal.SIGCONT)  # a stopped API server would make nodes wait for it
            if program.grace:
                program.process.terminate()
        while any(program.grace > time.monotonic() - started for program in self._running()):
            await asyncio.sleep(0.02)
        for program in self._running():
            program.process.kill()
        while self._running() or self._adopted():  # each killed process may leave children of its own to us
            self._kill_adopted()
            self._wait_for_adopted()
            await asyncio.sleep(0.01)


def children_of(parent: int) -> list[int]:
    """The processes, zombies included, whose parent is `parent`."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                stat = Path("/proc", entry, "stat").read_text(errors="replace")
                if int(stat.rpartition(")")[2].split()[1]) == parent:  # the name before it may hold anything
                    found.append(int(entry))
    return found


class Client:
    """The calls of a supervisor, from any process that may read its directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def call(self, do: str, **arguments: Any) -> dict[str, Any]:
        """One request; raises what the supervisor answers as an error.

        Raises:
            NotRunningError: No supervisor listens in the directory.
            DevClusterError: The supervisor could not do it.
        """
        with _directory_fd(self._directory) as fd, socket.socket(socket.AF_UNIX) as sock:
            try:
                sock.connect(f"/proc/self/fd/{fd}/{SOCKET}")  # short, however long the directory's own path is
            except (FileNotFoundError, ConnectionRefusedError):
                raise NotRunningError(f"no cluster runs in {self._directory}") from None
            sock.sendall(json.dumps({"do": do, **arguments}).encode() + b"\n")
            with sock.makefile("rb") as answers:
                line = answers.readline()
        if not line:
            raise NotRunningError(f"the cluster in {self._directory} is ending")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise DevClusterError(f"supervisor: {answer['error']}")
        return answer

    def returncode(self, name: str) -> int | None:
        """None while that program runs, else its exit status (negative: the signal that ended it)."""
        code: int | None = self.call("status")["programs"][name]["returncode"]
        return code

    def serves(self) -> bool:
        """Whether a supervisor listens."""
        try:
            return bool(self.call("status"))
        except NotRunningError:
            return False


def launch(directory: Path, log: Path, *, private_network: bool = False) -> subprocess.Popen[bytes]:
    """Starts a supervisor for this process; `Client.serves` tells when it can be used.

    Args:
        directory: Of the cluster.
        log: What it writes goes there.
        private_network: Whether it, and so all that it starts, gets a new network namespace (root only).
    """
    with open(log, "wb") as output:
        return subprocess.Popen(
            [
                *(["unshare", "--net", "--"] if private_network else []),
                sys.executable,
                "-P",
                "-m",
                "devcluster.supervisor",
                str(directory),
                str(os.getpid()),
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,  # the terminal's Ctrl-C is for the parent; its end is what counts here
        )


@contextmanager
def _directory_fd(directory: Path) -> Any:
    try:
        fd = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    except (FileNotFoundError, NotADirectoryError):
        raise NotRunningError(f"no cluster runs in {directory}") from None
    try:
        yield fd
    finally:
        os.close(fd)


def main() -> None:
    """One supervisor per directory: a second one gives up, even while the first is ending."""
    directory = Path(sys.argv[1])
    with open(directory / "supervisor.lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(f"another cluster starts, runs or ends in {directory}")
        asyncio.run(Supervisor(int(sys.argv[2]), "--keep-orphans" in sys.argv[3:]).run(directory))


if __name__ == "__main__":
    main()
