"""Where checkpoints lie: a small seam, so that object stores fit in and tests can stop a process at any effect.

Names are relative, with one folder at most: `FENCE.a3`, `step-00000120.a3/manifest.json`. No operation renames what a
reader may have seen: object stores cannot.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Protocol

from meshwright_trainer.checkpoint.errors import StorageError


class Storage(Protocol):
    """What writers and readers need of a place."""

    @property
    def url(self) -> str:
        """What to call the place in messages."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Writes a small file whole: readers see the old content or the new one. Durable when it returns."""
        ...

    def write(self, name: str, chunks: Iterable[memoryview]) -> None:
        """Writes a large file; until it returns a part of it may be there. Durable when it returns."""
        ...

    def get(self, name: str) -> bytes | None:
        """The content; None if there is no such file."""
        ...

    def local(self, name: str) -> Path:
        """A file on this machine with the content, to be mapped into memory."""
        ...

    def names(self, folder: str = "") -> list[str]:
        """Names in a folder, sorted; none if it is not there."""
        ...

    def delete(self, name: str) -> None:
        """Removes a file, if it is there."""
        ...

    def delete_folder(self, folder: str) -> None:
        """Removes a folder and the files in it, if it is there."""
        ...


def open_storage(location: str) -> Storage:
    """The storage at a path or URL.

    Raises:
        StorageError: it is a kind of URL that this version cannot write.
    """
    scheme, separator, rest = location.partition("://")
    if separator and scheme != "file":
        raise StorageError(
            f"spec.trainer.checkpoint.path: {location} is a {scheme}:// URL; use a folder under a shared volume"
        )
    return LocalStorage(Path(rest if separator else location))


_FOLDERS_NEED_NO_SYNC: Final = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP)
"""How file systems in front of an object store answer: they have no folders to make durable."""


def _no_effect(_: str) -> None:
    pass


class LocalStorage:
    """A folder that all ranks share."""

    def __init__(self, root: Path, on_effect: Callable[[str], None] = _no_effect) -> None:
        """Takes the folder; it is made by the first write.

        Args:
            root: the folder.
            on_effect: called before everything that changes the storage, with a description.
        """
        self._root = root
        self._on_effect = on_effect

    @property
    def url(self) -> str:
        """What to call the place in messages."""
        return str(self._root)

    def put(self, name: str, content: bytes) -> None:
        """Writes a small file whole, by way of a file beside it that no reader looks for."""
        unfinished = f"{name}.unfinished"
        self.write(unfinished, [memoryview(content)])
        self._on_effect(f"replace {name}")
        try:
            (self._root / unfinished).replace(self._root / name)
        except OSError as error:
            raise self._failed(name, "written", error) from error
        self._sync_folder((self._root / name).parent)

    def write(self, name: str, chunks: Iterable[memoryview]) -> None:
        """Writes a large file; until it returns a part of it may be there."""
        path = self._root / name
        try:
            self._make_folder(path.parent)
            self._on_effect(f"create {name}")
            with path.open("wb") as file:
                for chunk in chunks:
                    self._on_effect(f"write {name}")
                    file.write(chunk)
                self._on_effect(f"sync {name}")
                file.flush()
                os.fsync(file.fileno())
            self._sync_folder(path.parent)
        except OSError as error:
            raise self._failed(name, "written", error) from error

    def get(self, name: str) -> bytes | None:
        """The content; None if there is no such file."""
        try:
            return (self._root / name).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise self._failed(name, "read", error) from error

    def local(self, name: str) -> Path:
        """The file itself."""
        return self._root / name

    def names(self, folder: str = "") -> list[str]:
        """Names in a folder, sorted; none if it is not there."""
        try:
            return sorted(entry.name for entry in (self._root / folder).iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise self._failed(folder, "listed", error) from error

    def delete(self, name: str) -> None:
        """Removes a file, if it is there."""
        self._on_effect(f"delete {name}")
        try:
            (self._root / name).unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(name, "removed", error) from error

    def delete_folder(self, folder: str) -> None:
        """Removes a folder and the files in it. What an older attempt writes into it meanwhile may stay behind."""
        for name in self.names(folder):
            self.delete(f"{folder}/{name}")
        self._on_effect(f"delete {folder}")
        try:
            (self._root / folder).rmdir()
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ENOTEMPTY):
                return
            raise self._failed(folder, "removed", error) from error
        self._sync_folder(self._root)

    def _make_folder(self, folder: Path) -> None:
        if folder.is_dir():
            return
        self._on_effect(f"create {folder.name}/")
        folder.mkdir(parents=True, exist_ok=True)
        self._sync_folder(folder.parent)

    def _sync_folder(self, folder: Path) -> None:
        """A new name is durable only when its folder is."""
        self._on_effect(f"sync {folder.name}/")
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        except OSError as error:
            if error.errno not in _FOLDERS_NEED_NO_SYNC:
                raise self._failed(folder.name, "made durable", error) from error

    def _failed(self, name: str, what: str, error: OSError) -> StorageError:
        return StorageError(f"{self._root / name} cannot be {what}: {error.strerror or error}")
