"""`devcluster.node.sandbox.launch`: runs one container.

On standard input come one line of JSON (the `Order`) and then single letters: T sends SIGTERM to the container's main
process, K kills all of it. The end of standard input means that the node program is dead, and kills too. On standard
output go lines of JSON: {"started": pid} or {"error": text}, then {"ended": exit code}.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final, NoReturn

from devcluster.node.sandbox import linux, root
from devcluster.node.sandbox.logfile import LogFile

USER, ROOT, NONE = "user", "root", "none"
_NAMESPACES: Final = linux.CLONE_NEWNS | linux.CLONE_NEWUTS | linux.CLONE_NEWIPC
_DRAIN_SECONDS: Final = 2.0
# CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD,
# AUDIT_WRITE, SETFCAP: what container runtimes leave to a container.
_CAPABILITIES: Final = frozenset({0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31})

Order = Mapping[str, Any]


def main() -> None:
    """Runs the container that standard input describes."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # only the node program says when to end
    os.set_blocking(0, True)
    order, commands = _read_order()
    try:
        keeper = _Keeper(order)
    except OSError as error:
        _say(error=f"cannot make the container: {error}")
        return
    _say(**keeper.begin)
    if "started" in keeper.begin:
        _say(ended=keeper.keep(commands))


def _say(**message: object) -> None:
    with suppress(BrokenPipeError):
        os.write(1, json.dumps(message).encode() + b"\n")


def _read_order() -> tuple[Order, bytes]:
    text = b""
    while b"\n" not in text:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            sys.exit(0)
        text += chunk
    line, _, rest = text.partition(b"\n")
    return json.loads(line), rest


class _Keeper:
    """Starts the main process and stays with it."""

    def __init__(self, order: Order) -> None:
        self._isolation = order["isolation"]
        outputs = {name: os.pipe() for name in ("stdout", "stderr")}
        self._log = LogFile(order["log"])
        if self._isolation == NONE:
            linux.become_subreaper()
        else:
            _leave(self._isolation)
            linux.die_with_parent(signal.SIGKILL)  # after the change of credentials, which forgets it
        go, problem = os.pipe(), os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            _become_container(order, go, problem[1], {name: pipe[1] for name, pipe in outputs.items()})
        for fd in (go[0], problem[1], outputs["stdout"][1], outputs["stderr"][1]):
            os.close(fd)
        os.write(go[1], b"!")
        with open(problem[0], "rb") as pipe:
            said = pipe.read().decode()
        self.begin: dict[str, object] = {"error": said} if said else {"started": self.pid}
        self._outputs = {pipe[0]: name for name, pipe in outputs.items()}

    def keep(self, commands: bytes) -> int:
        """Waits for the end, meanwhile obeys and logs; the exit code as Kubernetes counts it."""
        selector = selectors.DefaultSelector()
        main_process = os.pidfd_open(self.pid)
        for fd in (0, main_process, *self._outputs):
            selector.register(fd, selectors.EVENT_READ)
        self._obey(commands)
        ended = False
        while not ended:
            for key, _ in selector.select():
                if key.fd == main_process:
                    ended = True
                elif key.fd == 0:
                    letters = os.read(0, 64)
                    if not letters:
                        selector.unregister(0)
                    self._obey(letters or b"K")
                elif not self._log.take(key.fd, self._outputs[key.fd]):
                    selector.unregister(key.fd)
        status = os.waitpid(self.pid, 0)[1]
        self._kill_rest()
        self._drain(selector)
        self._log.close()
        return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)

    def _obey(self, letters: bytes) -> None:
        for letter in letters.decode():
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM if letter == "T" else signal.SIGKILL)

    def _drain(self, selector: selectors.BaseSelector) -> None:
        until = time.monotonic() + _DRAIN_SECONDS
        for fd in self._outputs:
            while fd in selector.get_map() and time.monotonic() < until:
                ready = [key.fd for key, _ in selector.select(0.05)]
                if fd in ready and not self._log.take(fd, self._outputs[fd]):
                    selector.unregister(fd)

    def _kill_rest(self) -> None:
        """Ends what the main process has left; with a PID namespace the kernel has done it."""
        while self._isolation == NONE:
            for pid in _descendants(os.getpid()):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return


def _leave(isolation: str) -> None:
    """Enters the namespaces that the main process will be the first one of."""
    if isolation == ROOT:
        linux.unshare(linux.CLONE_NEWPID)
        return
    uid, gid = os.geteuid(), os.getegid()
    linux.unshare(linux.CLONE_NEWUSER | linux.CLONE_NEWPID)
    for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def _become_container(order: Order, go: tuple[int, int], problem: int, outputs: Mapping[str, int]) -> NoReturn:
    """The child's part: never returns."""
    try:
        os.close(go[1])
        os.setsid()
        linux.die_with_parent(signal.SIGKILL)
        if not os.read(go[0], 1):  # the parent died before that took effect
            os._exit(1)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(outputs["stdout"], 1)
        os.dup2(outputs["stderr"], 2)
        if order["isolation"] == NONE:
            os.chdir(order["working_dir"])
        else:
            linux.unshare(_NAMESPACES)
            linux.set_hostname(order["hostname"])
            root.enter(order["root"], order["mounts"], order["working_dir"])
            linux.keep_capabilities(_CAPABILITIES)
        _execute(order)
    except BaseException as error:
        os.write(problem, (str(error) or type(error).__name__).encode()[:4000])
        os._exit(1)


def _execute(order: Order) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # ignored ones would stay ignored
    os.umask(0o022)
    name = order["argv"][0]
    try:
        os.execvpe(name, order["argv"], order["env"])
    except FileNotFoundError:
        where = "no such file or directory" if "/" in name else "executable file not found in $PATH"
        raise OSError(f'exec: "{name}": {where}') from None
    except PermissionError:
        raise OSError(f'exec: "{name}": permission denied') from None


def _descendants(ancestor: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError), open(f"/proc/{entry}/stat", errors="replace") as file:
                parents[int(entry)] = int(file.read().rpartition(")")[2].split()[1])
    found = {ancestor}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found} - found
        if not more:
            return [pid for pid in found if pid != ancestor]
        found |= more
