"""System calls that Python 3.11 does not offer."""

from __future__ import annotations

import ctypes
import os
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWPID: Final = 0x20000000
MS_RDONLY: Final = 1
MS_NOSUID: Final = 2
MS_NODEV: Final = 4
MS_NOEXEC: Final = 8
MS_REMOUNT: Final = 32
MS_BIND: Final = 4096
MS_REC: Final = 16384
MS_SLAVE: Final = 1 << 19
MNT_DETACH: Final = 2
_PR_SET_PDEATHSIG: Final = 1
_PR_CAPBSET_READ: Final = 23
_PR_CAPBSET_DROP: Final = 24
_PR_SET_CHILD_SUBREAPER: Final = 36
_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41, "riscv64": 41}
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_LIBC.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)
_LIBC.sethostname.argtypes = (ctypes.c_char_p, ctypes.c_size_t)
_MS_RELATIME: Final = 1 << 21
# A flag as statvfs reports it, and as mount takes it.
_KEPT_FLAGS: Final = (
    (1, MS_RDONLY), (2, MS_NOSUID), (4, MS_NODEV), (8, MS_NOEXEC), (1024, 1024), (2048, 2048), (4096, _MS_RELATIME),
)  # fmt: skip


def _check(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


def unshare(flags: int) -> None:
    """Leaves the namespaces that `flags` name for new ones."""
    _check(_LIBC.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2)."""
    arguments = (source.encode(), target.encode(), kind.encode() or None, flags, data.encode() or None)
    _check(_LIBC.mount(*arguments), f"mount {source} on {target}")


def bind(source: str, target: str, *, read_only: bool = False) -> None:
    """Shows `source` at `target`, with all that is mounted below it."""
    mount(source, target, flags=MS_BIND | MS_REC)
    if read_only:
        now = os.statvfs(target).f_flag  # a user namespace may not clear flags that the machine has set
        kept = sum(flag for seen, flag in _KEPT_FLAGS if now & seen)
        mount("none", target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY | kept)


def unmount(target: str) -> None:
    """Takes a mount, and what is mounted below it, out of sight."""
    _check(_LIBC.umount2(target.encode(), MNT_DETACH), f"umount {target}")


def pivot_root_here() -> None:
    """Makes the current folder, which is a mount, the root; the old root is gone for us."""
    number = _PIVOT_ROOT.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root is not known here for {os.uname().machine}")
    _check(_LIBC.syscall(number, b".", b"."), "pivot_root")
    unmount(".")  # the old root, which lies over the new one
    os.chdir("/")


def set_hostname(name: str) -> None:
    """The UTS namespace's host name."""
    _check(_LIBC.sethostname(name.encode(), len(name.encode())), "sethostname")


def die_with_parent(signal_number: int) -> None:
    """The kernel sends us this signal when our parent ends, however it ends."""
    _check(_LIBC.prctl(_PR_SET_PDEATHSIG, signal_number, 0, 0, 0), "PR_SET_PDEATHSIG")


def become_subreaper() -> None:
    """Orphaned descendants become our children."""
    _check(_LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0), "PR_SET_CHILD_SUBREAPER")


def keep_capabilities(kept: frozenset[int]) -> None:
    """Programs executed from now on can have no capability but these."""
    number = 0
    while _LIBC.prctl(_PR_CAPBSET_READ, number, 0, 0, 0) >= 0:  # past the last one it fails
        if number not in kept:
            _LIBC.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)
        number += 1
