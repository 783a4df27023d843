"""Writes volumes and the small files of a pod."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from devcluster.node.errors import NotYet
from devcluster.node.projection import File
from devcluster.node.volume_model import HostPathVolume

_DATA: Final = "..data"


def publish(folder: Path, files: Mapping[str, File]) -> None:
    """Makes these files, and no others, the content of `folder`, in one step for whoever reads it.

    Every file is a link through `..data`, itself a link to a folder with a time in its name, as with a kubelet.
    """
    folder.mkdir(parents=True, exist_ok=True)
    current = folder / _DATA
    if current.is_symlink() and _content(current) == dict(files):
        return
    new = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    new.chmod(0o755)
    for name, file in files.items():
        path = new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(file.content)
        path.chmod(file.mode)
    old = os.readlink(current) if current.is_symlink() else None
    temporary = folder / "..data_tmp"
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(new.name)
    temporary.rename(current)
    _link_entries(folder, {name.split("/")[0] for name in files})
    if old:
        shutil.rmtree(folder / old, ignore_errors=True)


def _link_entries(folder: Path, wanted: set[str]) -> None:
    for entry in folder.iterdir():
        if not entry.name.startswith("..") and entry.name not in wanted:
            entry.unlink()
    for name in wanted:
        with suppress(FileExistsError):
            (folder / name).symlink_to(f"{_DATA}/{name}")


def _content(folder: Path) -> dict[str, File]:
    return {
        str(path.relative_to(folder)): File(path.read_bytes(), path.stat().st_mode & 0o7777)
        for path in folder.rglob("*")
        if path.is_file()
    }


def host_path(volume: HostPathVolume) -> Path:
    """A path of this machine after the check that its type asks for.

    Raises:
        NotYet: It is not what it must be.
    """
    path = Path(volume.path)
    if volume.kind in ("DirectoryOrCreate", ""):
        if not path.exists():
            path.mkdir(parents=True, mode=0o755)
        if volume.kind and not path.is_dir():
            raise _wrong(volume)
    elif volume.kind == "FileOrCreate":
        path.touch(mode=0o644)
        if not path.is_file():
            raise _wrong(volume)
    else:
        tests = {"Directory": path.is_dir, "File": path.is_file, "Socket": path.is_socket}
        tests |= {"CharDevice": path.is_char_device, "BlockDevice": path.is_block_device}
        if not tests[volume.kind]():
            raise _wrong(volume)
    return path


def _wrong(volume: HostPathVolume) -> NotYet:
    return NotYet(f"hostPath type check failed: {volume.path} is not a {volume.kind}")


def sub_path(volume: Path, relative: str) -> Path:
    """The part of a volume that is mounted; made as a folder if it does not exist.

    Raises:
        NotYet: It leads out of the volume.
    """
    path = volume / relative
    inside = Path(os.path.realpath(path)).is_relative_to(os.path.realpath(volume))
    if relative.startswith("/") or ".." in Path(relative).parts or not inside:
        message = f"subPath {relative!r} leads out of its volume"
        raise NotYet(message, waiting="CreateContainerConfigError", event="Failed")
    if not path.exists():
        path.mkdir(parents=True, mode=0o750)
    return path


def overwrite(path: Path, text: str) -> None:
    """Changes a file in place, because a bind mount keeps showing the file that it was made for.

    A reader sees the old text or the new one, at worst with empty lines at its end.
    """
    data = text.encode()
    fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        length = os.fstat(fd).st_size
        if os.pread(fd, length, 0) == data:
            return
        os.pwrite(fd, data.ljust(length, b"\n"), 0)
        os.ftruncate(fd, len(data))
    finally:
        os.close(fd)
