"""Starts containers through `sandbox.launch` and follows them to their end."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import devcluster
from devcluster.node import clock
from devcluster.node.environment import Execution
from devcluster.node.errors import ContainerNotStarted
from devcluster.node.logs import tail_text
from devcluster.node.model import Container
from devcluster.node.sandbox.launch import NONE
from devcluster.node.status import COMPLETED, ERROR, Terminated

_MESSAGE_BYTES: Final = 4096
_LOG_MESSAGE_LINES: Final = 80
_LOG_MESSAGE_BYTES: Final = 2048
_KILLED: Final = 137
# Without site-packages Python starts in half the time; the keeper needs only the standard library and itself.
_ROOT: Final = str(Path(devcluster.__file__).resolve().parents[1])
_PROGRAM: Final = f"import sys; sys.path.insert(0, {_ROOT!r}); from devcluster.node.sandbox.launch import main; main()"
KEEPER: Final = (sys.executable, "-S", "-E", "-c", _PROGRAM)


class ProcessContainer:
    """A container that runs."""

    def __init__(self, process: subprocess.Popen[bytes], words: asyncio.StreamReader, message: LastWords) -> None:
        self._process, self._words, self._message = process, words, message
        self.started_at = clock.now()
        self.container_id = ""
        self.ended: asyncio.Future[Terminated] = asyncio.get_running_loop().create_future()

    def terminate(self) -> None:
        """SIGTERM to its main process."""
        self._tell(b"T")

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self._tell(b"K")

    def follow(self, pid: int) -> None:
        """Waits for the end in the background."""
        self.container_id = f"process://{pid}"
        self._task = asyncio.create_task(self._to_the_end())

    async def _to_the_end(self) -> None:
        line = await self._words.readline()
        code = json.loads(line)["ended"] if line else _KILLED  # a keeper that was killed takes its container with it
        await asyncio.to_thread(self._process.wait)
        for pipe in (self._process.stdin, self._process.stdout):
            with suppress(OSError):
                pipe and pipe.close()
        reason = ERROR if code else COMPLETED
        text = self._message.text(code)
        self.ended.set_result(Terminated(code, reason, text, self.started_at, clock.now(), self.container_id))

    def _tell(self, letter: bytes) -> None:
        with suppress(OSError, ValueError):
            assert self._process.stdin is not None
            os.write(self._process.stdin.fileno(), letter)


class LastWords:
    """Where a container leaves its termination message."""

    def __init__(self, container: Container, folder: Path) -> None:
        self._container, self._folder = container, folder

    def text(self, code: int) -> str:
        """The message: its file's, or the end of the log if the file is empty and the policy says so."""
        with suppress(OSError):
            if data := (self._folder / "termination-log").read_bytes()[-_MESSAGE_BYTES:]:
                return data.decode(errors="replace")
        if code and self._container.message_from_logs:
            return tail_text(self._folder / "log", _LOG_MESSAGE_LINES, _LOG_MESSAGE_BYTES)
        return ""


async def launch(
    isolation: str,
    container: Container,
    run: Execution,
    mounts: Sequence[Mapping[str, Any]],
    folder: Path,
    hostname: str,
) -> ProcessContainer:
    """Starts a container.

    Raises:
        ContainerNotStarted: Its program cannot be executed, or its file system cannot be made.
    """
    env, working_dir = dict(run.env), container.working_dir or "/"
    if isolation == NONE:
        env |= _links(folder, mounts)
        working_dir = container.working_dir or str(folder / "root")
    order = {
        "isolation": isolation, "argv": run.argv, "env": env, "working_dir": working_dir, "hostname": hostname,
        "root": str(folder / "root"), "log": str(folder / "log"), "mounts": mounts,
    }  # fmt: skip
    process, words, answer = await _hand_over(json.dumps(order).encode() + b"\n")
    if "error" in answer:
        await asyncio.to_thread(process.wait)
        raise ContainerNotStarted(answer["error"])
    started = ProcessContainer(process, words, LastWords(container, folder))
    started.follow(answer["started"])
    return started


async def _hand_over(order: bytes) -> tuple[subprocess.Popen[bytes], asyncio.StreamReader, dict[str, Any]]:
    """Starts a keeper; returns its first answer. Nothing stays of it when this is cancelled."""
    process = subprocess.Popen(
        KEEPER,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        bufsize=0,
    )
    words = asyncio.StreamReader()
    try:
        assert process.stdin is not None
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(words), process.stdout)
        await asyncio.to_thread(process.stdin.write, order)
        answer = json.loads(await words.readline() or b'{"error": "its keeper ended"}')
    except BaseException:
        process.kill()
        process.wait()
        raise
    return process, words, answer


def _links(folder: Path, mounts: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Without namespaces: a folder in which each mount path is a link, and the variables that name it."""
    root = folder / "root"
    for mount in sorted(mounts, key=lambda one: one["target"].count("/")):
        link = root / mount["target"].lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        if not link.exists():
            link.symlink_to(mount["source"])
    return {"DEVCLUSTER_ROOT": str(root), "DEVCLUSTER_HOSTS": str(root / "etc" / "hosts")}
