"""What is missing, and whether this machine can hold it. Decisions are functions of values; facts are read apart."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

GB = 10**9
PACKAGES_GB = 6.5
"""The packages unpacked (torch with its CUDA libraries is 5.4 of it), once: `.venv` holds links into uv's cache."""
KUBERNETES_GB = 5.0
"""A build from nothing: Go, its cache, the modules and the programs."""


@dataclass(frozen=True)
class Todo:
    """What a run has to make."""

    venv: bool
    packages: bool
    kubernetes: bool

    @property
    def nothing(self) -> bool:
        """Whether the checkout is ready."""
        return not (self.venv or self.packages or self.kubernetes)


@dataclass(frozen=True)
class Place:
    """A folder that will grow, by how much at most, and the file system it lies on."""

    path: Path
    gigabytes: float
    device: int
    free: int


class SetupError(Exception):
    """Setting up cannot go on; the message says why and what to do."""


def decide(*, stamp: str, wanted: str, venv_works: bool, kubernetes_there: bool) -> Todo:
    """Compares what the last complete run left (`stamp`) with what the files of the checkout ask for."""
    return Todo(venv=not venv_works, packages=not venv_works or stamp != wanted, kubernetes=not kubernetes_there)


def digest(files: Sequence[Path], python: str) -> str:
    """Identifies the set of packages that these files and this Python lead to."""
    total = hashlib.sha256(python.encode())
    for path in sorted(files):
        total.update(f"\0{path.name}\0".encode() + path.read_bytes())
    return total.hexdigest()


def places(todo: Todo, venv: Path, packages_cache: Path, programs_cache: Path) -> list[Place]:
    """Which folders will grow. Where uv's cache lies on another file system than `.venv`, links are copies."""
    growing = []
    if todo.venv:
        growing.append(_place(packages_cache, PACKAGES_GB))
        if _place(venv, 0).device != growing[0].device:
            growing.append(_place(venv, PACKAGES_GB))
    if todo.kubernetes:
        growing.append(_place(programs_cache, KUBERNETES_GB))
    return growing


def shortage(growing: Sequence[Place]) -> str:
    """Names the first file system that is too small for all that will be put on it; empty if none is."""
    for place in growing:
        sharing = [other for other in growing if other.device == place.device]
        need = sum(other.gigabytes for other in sharing)
        if place.free < need * GB:
            where = " and ".join(str(other.path) for other in sharing)
            return (
                f"about {need:.1f} GB are needed at {where} for the first run, {place.free / GB:.1f} GB are free. Make"
                " room, or set UV_CACHE_DIR, GOCACHE, GOMODCACHE and XDG_CACHE_HOME to folders on a larger disk."
            )
    return ""


def check_machine(todo: Todo, growing: Sequence[Place]) -> None:
    """Says at once what would fail later.

    Raises:
        SetupError: this is not Linux, Python came without what makes a venv, or a disk is too small.
    """
    if sys.platform != "linux":
        raise SetupError(f"Meshwright's dev cluster and tests run on Linux; this is {sys.platform}")
    if todo.venv:
        missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
        if missing:
            raise SetupError(
                f"{sys.executable} has no module {' and no '.join(missing)}, which are part of Python but a package of"
                " their own on some systems (Debian, Ubuntu: python3-venv). Install it, or name another Python:"
                " `make PYTHON=/path/to/python3`."
            )
    if problem := shortage(growing):
        raise SetupError(problem)


def cache_folder(variable: str, name: str) -> Path:
    """Where a tool keeps its cache: what its variable says, else its folder in the user's cache."""
    if given := os.environ.get(variable):
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / name


def _place(path: Path, gigabytes: float) -> Place:
    existing = next(parent for parent in (path, *path.parents) if parent.exists())
    return Place(path, gigabytes, existing.stat().st_dev, shutil.disk_usage(existing).free)
