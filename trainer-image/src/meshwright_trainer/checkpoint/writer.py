"""Saving while training goes on.

`save` copies this rank's state and returns; a thread writes the copy, and that of rank 0 commits when every rank is
done. Step, scalars and tensors of a checkpoint are all from the moment of `save`. There is one save at a time: the next
waits for it, and says how it failed.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshwright_trainer.checkpoint.commit import collect, merge, prune, write_failure, write_rank
from meshwright_trainer.checkpoint.errors import CheckpointError, Fenced, SaveError, StorageError
from meshwright_trainer.checkpoint.fence import check_fence
from meshwright_trainer.checkpoint.fingerprint import Fingerprint
from meshwright_trainer.checkpoint.manifest import MANIFEST, Manifest, Name
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.checkpoint.resume import Start
from meshwright_trainer.checkpoint.staging import Staged, Staging
from meshwright_trainer.checkpoint.storage import Storage

COMMIT_TIMEOUT_SECONDS: Final = 600.0
"""How long rank 0 waits for the slowest rank's file."""


@dataclass(frozen=True, slots=True)
class Durable:
    """The last checkpoint that is committed."""

    step: int
    """Steps that were done."""
    time: float
    """When it was committed, seconds since 1970."""


@dataclass(frozen=True)
class _Snapshot:
    """Everything that a checkpoint is made from; nothing in it changes while it is written."""

    name: Name
    samples: int
    scalars: Mapping[str, float | int]
    staged: Mapping[str, Staged]


class Writer:
    """One rank's part in saving."""

    def __init__(
        self,
        storage: Storage,
        start: Start,
        *,
        rank: int,
        world_size: int,
        keep: int,
        fingerprint: Fingerprint,
        section: Mapping[str, Any] | None = None,
        timeout_seconds: float = COMMIT_TIMEOUT_SECONDS,
        now: Callable[[], float] = time.time,
    ) -> None:
        """Takes what stays the same over all saves of a process.

        Args:
            storage: shared by all ranks.
            start: how this attempt began; the same on every rank.
            rank: of this process.
            world_size: number of processes.
            keep: checkpoints of this run's line that are kept beside the one it resumed from.
            fingerprint: of model, tokenizer and data.
            section: the trainer section, kept with every checkpoint.
            timeout_seconds: how long rank 0 waits for the others' files.
            now: clock, seconds since 1970.
        """
        self._storage = storage
        self._start = start
        self._rank = rank
        self._world_size = world_size
        self._keep = keep
        self._fingerprint = fingerprint
        self._section = dict(section or {})
        self._timeout_seconds = timeout_seconds
        self._now = now
        self._staging = Staging()
        self._line = start.history
        self._saved: Name | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._durable: Durable | None = None

    @property
    def durable(self) -> Durable | None:
        """The last checkpoint that this process committed; None on other ranks than 0."""
        return self._durable

    def save(self, step: int, samples: int, pieces: Mapping[str, Piece], scalars: Mapping[str, float | int]) -> None:
        """Copies the state and returns; it is written in the background. A step that was saved is not saved again.

        Args:
            step: steps done.
            samples: samples that they drew.
            pieces: this rank's part of weights and optimizer state.
            scalars: the rest of the state, the same on every rank.

        Raises:
            Fenced: a newer attempt has begun; leave with exit code 76.
            CheckpointError: the save before this one failed, or this one's pieces cannot be saved.
        """
        self.wait()
        name = Name(step, self._start.attempt)
        if name == self._saved:
            return
        snapshot = _Snapshot(name, samples, dict(scalars), self._staging.snapshot(pieces))
        self._saved = name
        # A daemon: a process that has to end must not wait for the files of peers that have ended already.
        self._thread = threading.Thread(target=self._run, args=(snapshot,), name=f"save {name}", daemon=True)
        self._thread.start()

    def poll(self) -> None:
        """Raises what went wrong in the background, without waiting.

        Raises:
            CheckpointError: the last save failed.
        """
        if self._thread is None or self._thread.is_alive():
            return
        self.wait()

    def wait(self) -> None:
        """Returns when nothing is being written.

        Raises:
            CheckpointError: the last save failed. It is said once.
        """
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            lost, self._saved = self._saved, None
            if isinstance(error, StorageError):
                raise SaveError(f"{lost} was not kept: {error}") from error
            raise error

    def _run(self, snapshot: _Snapshot) -> None:
        folder = str(snapshot.name)
        try:
            self._check()
            write_rank(self._storage, folder, self._rank, snapshot.staged)
            if self._rank == 0:
                self._commit(snapshot)
        except BaseException as error:
            self._error = self._fenced() or error
            if self._rank != 0 and not isinstance(self._error, Fenced):
                with contextlib.suppress(CheckpointError):
                    write_failure(self._storage, folder, self._rank, error)

    def _commit(self, snapshot: _Snapshot) -> None:
        folder = str(snapshot.name)
        reports = collect(self._storage, folder, self._world_size, self._timeout_seconds, self._check)
        files, tensors = merge(reports, folder)
        manifest = Manifest(
            step=snapshot.name.step,
            samples=snapshot.samples,
            attempt=snapshot.name.attempt,
            world_size=self._world_size,
            time=self._now(),
            run=self._start.run,
            origin=self._start.origin,
            history=self._line,
            section=self._section,
            fingerprint=self._fingerprint.to_json(),
            scalars=snapshot.scalars,
            files=files,
            tensors=tensors,
        )
        self._check()
        self._storage.put(f"{folder}/{MANIFEST}", manifest.to_json())
        self._durable = Durable(manifest.step, manifest.time)
        self._line = prune(self._storage, (*self._line, folder), self._keep, self._start.base, self._check)

    def _fenced(self) -> Fenced | None:
        """Whether an error comes from a newer attempt that cleared away what this one was writing."""
        try:
            self._check()
        except CheckpointError as error:
            return error if isinstance(error, Fenced) else None
        return None

    def _check(self) -> None:
        check_fence(self._storage, self._start.attempt)
