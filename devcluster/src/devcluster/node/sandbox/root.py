"""A container's file system: this machine's, with the pod's volumes mounted at their true paths.

The new root is a tmpfs into which every entry of the machine's root is bound. Where a mount path does not exist on the
machine, the deepest folder above it that does exist is made anew in the same way (a *forest*: a tmpfs with every entry
bound), so that the path can be made there without touching the machine. That works in any user namespace, unlike an
overlay.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from devcluster.node.sandbox.linux import (
    MS_NODEV,
    MS_NOEXEC,
    MS_NOSUID,
    MS_REC,
    MS_SLAVE,
    bind,
    mount,
    pivot_root_here,
    unmount,
)

_SHM_SIZE: Final = "64m"  # what container runtimes give
_MOST_LINKS: Final = 40
_NO_PROGRAMS: Final = MS_NOSUID | MS_NODEV | MS_NOEXEC


def enter(where: str, mounts: Sequence[Mapping[str, Any]], working_dir: str) -> None:
    """Builds the root on the folder `where` and makes it ours. The caller has a mount namespace of its own.

    Args:
        mounts: `source`, `target` and `read_only` of each; a source that is a file is mounted as a file.
    """
    mount("none", "/", flags=MS_REC | MS_SLAVE)  # nothing that we mount shall show outside
    root = _Root(where)
    root.fill()
    for one in sorted(mounts, key=lambda one: one["target"].count("/")):
        root.add(one["source"], one["target"], one["read_only"])
    root.make_folder(working_dir)
    os.chdir(where)
    pivot_root_here()
    os.chdir(working_dir)


class _Root:
    def __init__(self, where: str) -> None:
        self._where = where
        self._made: set[str] = {"/"}  # folders of ours, as paths of the new root; not what is below them
        self._volumes: list[str] = []  # mount points, in which everything may be changed

    def fill(self) -> None:
        """The machine's own files, with /proc and /dev/shm of our own."""
        mount("tmpfs", self._where, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
        self._bind_entries("/", "/", skip={"proc", "dev"})
        for folder in ("/proc", "/dev"):
            os.mkdir(self._outside(folder))
        mount("tmpfs", self._outside("/dev"), "tmpfs", MS_NOSUID, "mode=755")
        self._bind_entries("/dev", "/dev", skip={"shm"})
        os.mkdir(self._outside("/dev/shm"))
        self._made |= {"/dev", "/dev/shm"}
        mount("shm", self._outside("/dev/shm"), "tmpfs", _NO_PROGRAMS, f"mode=1777,size={_SHM_SIZE}")
        try:
            mount("proc", self._outside("/proc"), "proc", _NO_PROGRAMS)
        except PermissionError:  # where parts of /proc are masked, as in a container
            bind("/proc", self._outside("/proc"))

    def add(self, source: str, target: str, read_only: bool) -> None:
        """Mounts a volume; makes the mount point if need be."""
        is_folder = os.path.isdir(source)
        point = self._mount_point(target, is_folder)
        bind(source, self._outside(point), read_only=read_only)
        if is_folder:
            self._volumes.append(point)

    def make_folder(self, path: str) -> None:
        """Makes a folder that may not exist."""
        self._mount_point(path, True)

    def _outside(self, path: str) -> str:
        return self._where + path

    def _bind_entries(self, source: str, path: str, skip: Container[str] = ()) -> None:
        for entry in os.scandir(source):
            place = os.path.join(self._outside(path), entry.name)
            if entry.name in skip:
                continue
            if entry.is_symlink():
                os.symlink(os.readlink(entry.path), place)
                continue
            _make(place, is_folder=entry.is_dir())
            with suppress(OSError):  # an entry that cannot be bound (a dead network mount) stays empty
                bind(entry.path, place)

    def _forest(self, path: str) -> None:
        """Makes a folder of the new root ours, with the entries (and mounts) that it has."""
        aside, place = self._outside("/.aside"), self._outside(path)
        os.mkdir(aside)
        bind(place, aside)
        mode = stat.S_IMODE(os.stat(place).st_mode)
        mount("tmpfs", place, "tmpfs", MS_NOSUID | MS_NODEV, f"mode={mode:o}")
        self._bind_entries(aside, path)
        unmount(aside)
        os.rmdir(aside)
        self._made.add(path)

    def _mount_point(self, target: str, is_folder: bool) -> str:
        """The path that `target` leads to in the new root, made if it does not exist."""
        todo, at, links = [part for part in reversed(target.split("/")) if part], "/", 0
        while todo:
            part = todo.pop()
            if part == "..":
                at = os.path.dirname(at)
                continue
            path = os.path.join(at, part)
            outside = self._outside(path)
            if os.path.islink(outside):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(f"too many symbolic links in {target}")
                link = os.readlink(outside)
                at = "/" if link.startswith("/") else at
                todo += [one for one in reversed(link.split("/")) if one and one != "."]
                continue
            if not os.path.lexists(outside):
                is_folder_here = is_folder or bool(todo)
                if at not in self._made and not any(f"{at}/".startswith(f"{own}/") for own in self._volumes):
                    self._forest(at)
                _make(outside, is_folder=is_folder_here)
                if is_folder_here:
                    self._made.add(path)
            elif not todo and os.path.isdir(outside) != is_folder:
                kinds = ("a file", "a folder") if is_folder else ("a folder", "a file")
                raise OSError(f"{target} is {kinds[0]} on this machine and {kinds[1]} in the volume")
            at = path
        return at


def _make(path: str, *, is_folder: bool) -> None:
    if is_folder:
        os.mkdir(path, 0o755)
    else:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
