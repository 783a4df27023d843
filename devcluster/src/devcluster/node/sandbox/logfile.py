"""A container's log in the format of container runtimes: `TIME STREAM F|P TEXT`."""

from __future__ import annotations

import os
import time
from typing import Final

_LONGEST: Final = 16 * 1024  # a longer line is written in parts, each but the last marked P


class LogFile:
    """Writes what comes out of a container's two streams."""

    def __init__(self, path: str) -> None:
        self._file = open(path, "ab", buffering=0)  # noqa: SIM115  (it lives as long as this object)
        self._rest = {"stdout": b"", "stderr": b""}

    def take(self, fd: int, stream: str) -> bool:
        """Reads what is there from `fd`; False at its end."""
        data = os.read(fd, 1 << 16)
        *lines, rest = (self._rest[stream] + data).split(b"\n")
        head = f"{_now()} {stream} ".encode()
        out = [head + b"F " + line + b"\n" for line in lines if len(line) <= _LONGEST]
        if len(out) != len(lines):
            out = [head + part for line in lines for part in _parts(line)]
        while len(rest) > _LONGEST:
            out.append(head + b"P " + rest[:_LONGEST] + b"\n")
            rest = rest[_LONGEST:]
        self._rest[stream] = rest
        if out:
            self._file.write(b"".join(out))
        return bool(data)

    def close(self) -> None:
        """Writes what had no newline, as part of a line, so that none is shown."""
        for stream, rest in self._rest.items():
            if rest:
                self._file.write(f"{_now()} {stream} P ".encode() + rest + b"\n")
        self._file.close()


def _parts(line: bytes) -> list[bytes]:
    parts = [line[at : at + _LONGEST] for at in range(0, len(line), _LONGEST)] or [b""]
    return [b"P " + part + b"\n" for part in parts[:-1]] + [b"F " + parts[-1] + b"\n"]


def _now() -> str:
    seconds, nanoseconds = divmod(time.time_ns(), 1_000_000_000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(seconds))}.{nanoseconds:09d}Z"
