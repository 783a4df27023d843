"""What the agent asks of Linux beyond Python's own words for it."""

from __future__ import annotations

import os
import signal
from typing import Callable

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


def _find_prctl() -> Callable[[int, int], int]:
    """The C library's `prctl`; some small images have a Python without ctypes, and do without it."""
    try:
        import ctypes

        prctl = ctypes.CDLL(None).prctl
    except (ImportError, OSError, AttributeError):
        return lambda option, value: -1
    return lambda option, value: int(prctl(option, value, 0, 0, 0))


_prctl = _find_prctl()


def adopt_orphans() -> None:
    """From now on, grandchildren whose parent ends become this process's children, as they do with PID 1."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent(parent: int) -> None:
    """Has the kernel kill this process when its parent ends, however that ends; called in a new child."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # It ended before it could be asked for.
        os._exit(128 + signal.SIGKILL)


def children() -> tuple[int, ...]:
    """Every child of this process, adopted ones too; none where /proc cannot be read."""
    me = os.getpid()
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return ()
    return tuple(pid for pid in pids if _parent(pid) == me)


def _parent(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The name in parentheses may hold anything, a parenthesis too.
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return 0
