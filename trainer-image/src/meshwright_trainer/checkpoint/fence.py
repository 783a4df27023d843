"""The fence: which attempt may write, and from where it began.

A node that is cut off keeps training. When the network heals, its attempt would commit, or prune, among the newer
attempt's checkpoints. So every attempt begins by raising the fence, and every writer looks at it before it commits and
before it removes anything. Between the look and the write the fence may still rise; what is written then lies in a
folder that carries its attempt's number, and no later reader considers it.

Each attempt has a file of its own, `FENCE.a3`, and the highest counts: an attempt that slept between looking and
raising cannot lower the fence, as it would by overwriting a common file.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import Final

from meshwright_trainer.checkpoint.errors import Fenced, StorageError
from meshwright_trainer.checkpoint.manifest import MANIFEST, Name
from meshwright_trainer.checkpoint.storage import Storage

_FILE: Final = re.compile(r"FENCE\.a(\d+)")


@dataclass(frozen=True, slots=True)
class Fence:
    """Content of the fence."""

    attempt: int
    """The attempt that may write; lower ones may not. Counted over all jobs that ever wrote here."""
    base: str = ""
    """Checkpoint that it resumed from: a folder's name here, or a path elsewhere. Empty: none."""
    choosing: int | None = None
    """Set while the attempt has not chosen its base yet: commits from this attempt on may still become it."""
    run: str = ""
    """Identity of the job that the attempt belongs to; empty outside Kubernetes."""
    before: int = 0
    """Attempt that the fence was at when this job's first attempt came."""

    @property
    def floor(self) -> int:
        """Lowest attempt whose commits count beside the base."""
        return self.attempt if self.choosing is None else self.choosing


def read_fence(storage: Storage) -> Fence | None:
    """The fence; None if no attempt has begun here.

    Raises:
        StorageError: the file is not what was written.
    """
    numbers = _numbers(storage)
    if not numbers:
        return None
    content = storage.get(_file(numbers[-1]))
    if content is None:  # a newer attempt has just removed it
        return read_fence(storage)
    try:
        return Fence(**json.loads(content))
    except (ValueError, TypeError) as error:
        raise StorageError(
            f"{storage.url}/{_file(numbers[-1])} cannot be read: {error!r}; without it nobody knows which checkpoints "
            f'count. Write {{"attempt": {numbers[-1]}, "base": "step-..."}} into it, with the one to go on from'
        ) from error


def write_fence(storage: Storage, fence: Fence) -> None:
    """Raises the fence, or says more about an attempt's own; durable when it returns."""
    storage.put(_file(fence.attempt), json.dumps(asdict(fence)).encode())


def clear_fences(storage: Storage, attempt: int) -> None:
    """Removes what older attempts raised."""
    for number in _numbers(storage):
        if number < attempt:
            storage.delete(_file(number))


def check_fence(storage: Storage, attempt: int) -> None:
    """Returns if the attempt may still write.

    Raises:
        Fenced: a newer attempt has begun.
    """
    newest = max(_numbers(storage), default=0)
    if newest > attempt:
        raise Fenced(f"attempt {newest} writes to {storage.url} now; attempt {attempt} ends here")


def commits(storage: Storage) -> tuple[Name, ...]:
    """Every committed checkpoint, oldest first, whether it counts or not."""
    return tuple(name for name in _folders(storage) if MANIFEST in storage.names(str(name)))


def uncommitted(storage: Storage) -> tuple[Name, ...]:
    """Folders of checkpoints that were never committed."""
    return tuple(name for name in _folders(storage) if MANIFEST not in storage.names(str(name)))


def eligible(names: tuple[Name, ...], fence: Fence | None) -> tuple[Name, ...]:
    """Those of the commits that count: the fence's base, and what its attempt or later ones wrote."""
    if fence is None:
        return names
    return tuple(name for name in names if str(name) == fence.base or name.attempt >= fence.floor)


def _file(attempt: int) -> str:
    return f"FENCE.a{attempt}"


def _numbers(storage: Storage) -> list[int]:
    return sorted(int(match[1]) for name in storage.names() if (match := _FILE.fullmatch(name)))


def _folders(storage: Storage) -> list[Name]:
    found = (Name.parse(folder) for folder in storage.names())
    return sorted(name for name in found if name is not None)
