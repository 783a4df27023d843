"""Reads container logs, written by `sandbox.logfile`, the way the kubelet's log endpoint shows them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from devcluster.node import clock

_POLL_SECONDS: Final = 0.1
_CHUNK: Final = 1 << 16


@dataclass(frozen=True)
class LogRequest:
    """What of a log is wanted; None means no limit."""

    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since: float | None = None
    limit_bytes: int | None = None


def parse_request(query: Mapping[str, str], now: float) -> LogRequest:
    """The query of `/containerLogs/...`.

    Raises:
        ValueError: A number is not one.
    """
    since = now - float(query["sinceSeconds"]) if query.get("sinceSeconds") else None
    if query.get("sinceTime"):
        since = clock.parse(query["sinceTime"])
    return LogRequest(
        follow=query.get("follow") == "true",
        previous=query.get("previous") == "true",
        timestamps=query.get("timestamps") == "true",
        tail_lines=int(query["tailLines"]) if query.get("tailLines") else None,
        since=since,
        limit_bytes=int(query["limitBytes"]) if query.get("limitBytes") else None,
    )


def shown(line: bytes, request: LogRequest) -> bytes:
    """One stored line (without its newline) as it is shown; empty if it is too old."""
    time, _, rest = line.partition(b" ")
    _, _, rest = rest.partition(b" ")
    tag, _, text = rest.partition(b" ")
    if request.since is not None and clock.parse(time.decode()) < request.since:
        return b""
    head = time + b" " if request.timestamps else b""
    return head + text + (b"" if tag == b"P" else b"\n")


def last_lines(lines: Iterable[bytes], count: int) -> list[bytes]:
    """The stored lines of the last `count` whole lines."""
    kept = list(lines)
    whole = 0
    for at in range(len(kept) - 1, -1, -1):
        is_whole = kept[at].split(b" ", 3)[2:3] != [b"P"]
        whole += is_whole
        if whole > count:
            return kept[at + 1 :]
    return kept


async def read(path: Path, request: LogRequest, over: Callable[[], bool]) -> AsyncIterator[bytes]:
    """The log in pieces; with `follow` until the container is `over` and all is shown."""
    left = request.limit_bytes
    async for lines in _batches(path, request, over):
        data = b"".join(shown(line, request) for line in lines)
        if left is not None:
            data = data[:left]
            left -= len(data)
        if data:
            yield data
        if left == 0:
            return


async def _batches(path: Path, request: LogRequest, over: Callable[[], bool]) -> AsyncIterator[list[bytes]]:
    with path.open("rb") as file:
        *lines, rest = file.read().split(b"\n")
        if request.tail_lines is not None:
            lines = last_lines(lines, request.tail_lines)
        yield lines
        while request.follow:
            ended = over()  # asked before reading, so that nothing written until then is missed
            data = file.read(_CHUNK)
            *lines, rest = (rest + data).split(b"\n")
            if lines:
                yield lines
            if not data:
                if ended:
                    return
                await asyncio.sleep(_POLL_SECONDS)


def tail_text(path: Path, most_lines: int, most_bytes: int) -> str:
    """The end of a log as plain text, for a termination message."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 4 * most_bytes - 64 * most_lines))
            lines = last_lines(file.read().split(b"\n")[:-1], most_lines)
    except FileNotFoundError:
        return ""
    text = b"".join(shown(line, LogRequest()) for line in lines if line[:4].isdigit())
    return text[-most_bytes:].decode(errors="replace")
