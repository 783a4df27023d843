"""Operators as processes: started, killed, paused, and started again at once by a supervisor, as a kubelet would."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

_ZYGOTE = Path(__file__).with_name("zygote.py")
_ROOT = Path(__file__).resolve().parents[2]


class Zygote:
    """The process that operators are forked from."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(_ZYGOTE),
            cwd=_ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        async with asyncio.timeout(60):
            await self._answer()
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        await self._process.wait()

    async def spawn(self, argv: Sequence[str], log: Path, env: Mapping[str, str]) -> Process:
        """Starts an operator with that command line."""
        async with self._lock:
            assert self._process.stdin
            request = {"argv": list(argv), "log": str(log), "env": dict(env)}
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            answer = await self._answer()
        return Process(answer["pid"])

    async def _answer(self) -> Any:
        assert self._process.stdout
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the zygote ended with {await self._process.wait()}")
        return json.loads(line)


class Process:
    """One running operator; it is not our child, so its end is seen through a pidfd."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.started_at = time.monotonic()
        self.killed = False
        self.ended = asyncio.Event()
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self.ended.set()
            return
        asyncio.get_running_loop().add_reader(self._fd, self._seen_to_end)

    def kill(self) -> None:
        """SIGKILL."""
        self.killed = True
        self._send(signal.SIGKILL)

    def pause(self) -> None:
        """SIGSTOP: it does nothing, and does not know it."""
        self._send(signal.SIGSTOP)

    def go_on(self) -> None:
        """SIGCONT."""
        self._send(signal.SIGCONT)

    def explain(self) -> str:
        """Has it write its stack into its log; returns the kernel's word for its state (`S` sleeps, `T` is stopped)."""
        self._send(signal.SIGUSR1)
        with suppress(OSError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]
        return "ended"

    async def stop(self) -> None:
        """SIGTERM, and SIGKILL if that is not enough."""
        self.killed = True
        self._send(signal.SIGTERM)
        self._send(signal.SIGCONT)
        with suppress(TimeoutError):
            async with asyncio.timeout(10):
                await self.ended.wait()
        self.kill()
        await self.ended.wait()

    def _send(self, number: int) -> None:
        if not self.ended.is_set():
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._fd, number)

    def _seen_to_end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        self.ended.set()


@dataclass
class Supervisor:
    """Keeps one operator running: whatever ends it, the next one starts at once.

    Attributes:
        starts: How many were started.
        deserted: Ends that nobody here asked for: a fault of the operator.
    """

    zygote: Zygote
    argv: Sequence[str]
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)
    starts: int = 0
    deserted: int = 0
    process: Process | None = None
    _task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._start()
        self._task = asyncio.ensure_future(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def kill(self) -> None:
        """Kills the operator that runs now."""
        if self.process:
            self.process.kill()

    async def end(self) -> None:
        """Ends it for good."""
        if self._task:
            self._task.cancel()
            await asyncio.wait({self._task})
            self._task = None
        if self.process:
            await self.process.stop()

    async def _start(self) -> None:
        self.process = await self.zygote.spawn(self.argv, self.log, self.env)
        self.starts += 1

    async def _watch(self) -> None:
        while True:
            assert self.process
            await self.process.ended.wait()
            if not self.process.killed:
                self.deserted += 1
                await asyncio.sleep(0.5)
            await self._start()
