"""The control groups under which a container node's pods live; version 1, version 2 and hybrids of them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PREFIX = "devcluster-"


def name(supervisor_pid: int, node: str) -> str:
    """A group that no other cluster has."""
    return f"{PREFIX}{supervisor_pid}-{node}"


def hierarchies() -> list[Path]:
    """The roots of all mounted hierarchies."""
    if (ROOT / "cgroup.controllers").exists():
        return [ROOT]
    return sorted(path for path in ROOT.iterdir() if (path / "cgroup.procs").exists() and not path.is_symlink())


def create(group: str) -> None:
    """Makes the group in every hierarchy."""
    for hierarchy in hierarchies():
        (hierarchy / group).mkdir(exist_ok=True)
        for setting in ("cpuset.cpus", "cpuset.mems"):  # version 1 takes no process before these are set
            if hierarchy.name == "cpuset" and (hierarchy / setting).exists():
                (hierarchy / group / setting).write_text((hierarchy / setting).read_text())


def remove(groups: Iterable[str]) -> None:
    """Removes groups and all below them; one that still has processes stays."""
    for group in groups:
        for hierarchy in hierarchies():
            for folder, _, _ in os.walk(hierarchy / group, topdown=False):
                with suppress(OSError):
                    os.rmdir(folder)


def left_behind() -> list[str]:
    """Groups of clusters that could not clean up, as their supervisor is gone."""
    groups = {path.name for hierarchy in hierarchies() for path in hierarchy.glob(f"{PREFIX}*")}
    return sorted(group for group in groups if not Path("/proc", group.removeprefix(PREFIX).split("-")[0]).exists())
