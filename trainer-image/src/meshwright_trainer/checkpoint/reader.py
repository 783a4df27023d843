"""Reading checkpoints into whatever pieces a run has now."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import torch
from safetensors import safe_open
from torch import Tensor

from meshwright_trainer.checkpoint.boxes import Box
from meshwright_trainer.checkpoint.errors import CheckpointError, CorruptCheckpoint, Mismatch, NoCheckpoint
from meshwright_trainer.checkpoint.fence import commits, eligible, read_fence
from meshwright_trainer.checkpoint.manifest import MANIFEST, Manifest, Name, StoredTensor
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.checkpoint.storage import Storage, open_storage
from meshwright_trainer.checkpoint.tensor_file import DTYPES

WEIGHTS: Final = "model/"
"""What the names of weights begin with; what follows is the parameter's name."""

_TORCH_DTYPES: Final = {name: dtype for dtype, name in DTYPES.items()}
_SHOWN = 20


class Checkpoint:
    """A committed checkpoint. Each file is checked against its hash when it is first used."""

    def __init__(self, storage: Storage, folder: str) -> None:
        """Opens a checkpoint by the name of its folder.

        Raises:
            NoCheckpoint: it is not there, or was never committed.
            CorruptCheckpoint: its manifest is not what was written.
        """
        content = storage.get(f"{folder}/{MANIFEST}")
        self.location = f"{storage.url}/{folder}"
        """Where it is; `open` takes it."""
        if content is None:
            raise NoCheckpoint(f"{self.location} is no checkpoint: it has no {MANIFEST}")
        self.folder = folder
        self.manifest = Manifest.from_json(content, f"{self.location}/{MANIFEST}")
        self._storage = storage
        self._open: dict[str, Any] = {}

    @classmethod
    def open(cls, location: str) -> Checkpoint:
        """Opens a checkpoint, or the newest one that counts in a folder of checkpoints.

        Args:
            location: path or `file://` URL.

        Raises:
            NoCheckpoint: there is none.
            CorruptCheckpoint: its manifest is not what was written.
            StorageError: it is another kind of URL.
        """
        if location.startswith("job/"):
            raise NoCheckpoint(f"{location}: checkpoints cannot be named by their job yet; give the path of one")
        storage = open_storage(location.rstrip("/"))
        path = Path(storage.url)
        if Name.parse(path.name) is not None:
            return cls(open_storage(str(path.parent)), path.name)
        counted = eligible(commits(storage), read_fence(storage))
        if not counted:
            raise NoCheckpoint(f"{location} has no checkpoint that counts")
        return cls(storage, str(counted[-1]))

    def load_into(self, pieces: Mapping[str, Piece], names: Collection[str] | None = None) -> None:
        """Fills pieces with the state they had, whatever cut them then and now.

        Args:
            pieces: this rank's.
            names: tensors that the ranks have together, where one rank does not have them all.

        Raises:
            Mismatch: the checkpoint has other names, shapes or types; all that differ are named.
            CorruptCheckpoint: a file is not what was written.
        """
        stored = self.manifest.tensors
        wanted = set(pieces) if names is None else set(names)
        problems = [
            *_listed("not in the checkpoint", wanted - set(stored)),
            *_listed("in the checkpoint, but not in this run", set(stored) - wanted),
            *_shapes({name: piece for name, piece in pieces.items() if name in stored}, stored, types=True),
        ]
        self._refuse(problems)
        for name, piece in pieces.items():
            self._fill(name, Box(piece.offsets, tuple(piece.tensor.shape)), piece.tensor)

    def load_weights(self, pieces: Mapping[str, Piece], patterns: Sequence[str] = ()) -> tuple[str, ...]:
        """Fills weights alone, for a run that begins with them; types are converted.

        Args:
            pieces: this rank's; what is no weight stays as it is.
            patterns: `fnmatch` patterns of the parameters to load; none: all.

        Returns:
            Names of the parameters that were loaded.

        Raises:
            Mismatch: a parameter is not in the checkpoint or has another shape, or a pattern matches none.
            CorruptCheckpoint: a file is not what was written.
        """
        weights = {name.removeprefix(WEIGHTS): piece for name, piece in pieces.items() if name.startswith(WEIGHTS)}
        idle = [p for p in patterns if not any(fnmatchcase(name, p) for name in weights)]
        chosen = {
            name: piece
            for name, piece in weights.items()
            if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
        }
        stored = {
            name.removeprefix(WEIGHTS): tensor
            for name, tensor in self.manifest.tensors.items()
            if name.startswith(WEIGHTS)
        }
        problems = [
            *_listed("patterns in spec.trainer.model.init.load that match no parameter", idle),
            *_listed("not in the checkpoint (leave them out of spec.trainer.model.init.load)", chosen.keys() - stored),
            *_shapes({name: piece for name, piece in chosen.items() if name in stored}, stored, types=False),
        ]
        self._refuse(problems)
        for name, piece in chosen.items():
            self._fill(f"{WEIGHTS}{name}", Box(piece.offsets, tuple(piece.tensor.shape)), piece.tensor)
        return tuple(chosen)

    def tensor(self, name: str) -> Tensor:
        """A whole tensor.

        Raises:
            Mismatch: there is no tensor of this name.
            CorruptCheckpoint: a file is not what was written.
        """
        stored = self.manifest.tensors.get(name)
        if stored is None:
            raise Mismatch(f"{self.location} has no tensor {name}")
        whole = torch.empty(stored.shape, dtype=_TORCH_DTYPES[stored.dtype])
        self._fill(name, Box((0,) * len(stored.shape), stored.shape), whole)
        return whole

    def verify(self) -> None:
        """Checks every file against its hash.

        Raises:
            CorruptCheckpoint: one is not what was written.
        """
        for file in self.manifest.files:
            self._file(file)

    def _fill(self, name: str, box: Box, target: Tensor) -> None:
        for stored in self.manifest.tensors[name].boxes:
            common = box.meet(stored.box)
            if common is None:
                continue
            file = self._file(stored.file)
            if not common.sizes:
                part = file.get_tensor(stored.key)
            else:
                part = file.get_slice(stored.key)[common.slices_in(stored.box)]
            with torch.no_grad():
                target[common.slices_in(box)].copy_(part)

    def _file(self, name: str) -> Any:
        """The file mapped into memory, once its content was found to be what was written."""
        if name not in self._open:
            path = self._storage.local(f"{self.folder}/{name}")
            if problem := self._damage(name, path):
                raise CorruptCheckpoint(f"{self.location}/{name}: {problem}. {self._way_out()}")
            self._open[name] = safe_open(path, framework="pt")
        return self._open[name]

    def _damage(self, name: str, path: Path) -> str | None:
        written = self.manifest.files[name]
        try:
            size = path.stat().st_size
            if size != written.bytes:
                return f"the file has {size} bytes, {written.bytes} were written"
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != written.sha256:
                    return "the content is not what was written (SHA-256)"
        except OSError as error:
            return f"the file cannot be read: {error.strerror or error}"
        return None

    def _way_out(self) -> str:
        """Which older checkpoint is whole. Nothing goes on from it by itself: steps would be lost without a word."""
        for folder in reversed(self.manifest.history):
            try:
                older = Checkpoint(self._storage, folder)
                damaged = any(
                    older._damage(name, self._storage.local(f"{folder}/{name}")) for name in older.manifest.files
                )
            except CheckpointError:
                continue
            if not damaged:
                return (
                    f"The newest older checkpoint that is whole is {older.location}: to go on from it, set "
                    "spec.trainer.checkpoint.resume: From and resumeFrom to it"
                )
        return "No older checkpoint of this run is whole"

    def _refuse(self, problems: Sequence[str]) -> None:
        if problems:
            raise Mismatch(f"{self.location} does not fit this run:\n" + "\n".join(f"  {p}" for p in problems))


def _listed(what: str, names: Iterable[str]) -> list[str]:
    found = sorted(names)
    if not found:
        return []
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return [f"{what}: {', '.join(found[:_SHOWN])}{more}"]


def _shapes(pieces: Mapping[str, Piece], stored: Mapping[str, StoredTensor], *, types: bool) -> list[str]:
    problems = []
    for name, piece in pieces.items():
        there, dtype = stored[name], DTYPES.get(piece.tensor.dtype, str(piece.tensor.dtype))
        if there.shape != piece.shape:
            problems.append(f"{name} has the shape {there.shape} there, {piece.shape} here")
        elif types and there.dtype != dtype:
            problems.append(f"{name} is {there.dtype} there, {dtype} here")
    return problems[:_SHOWN]
