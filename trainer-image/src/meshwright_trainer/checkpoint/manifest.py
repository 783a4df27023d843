"""The manifest: what a checkpoint is. It is written last; a folder without it is no checkpoint."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from meshwright_trainer.checkpoint.boxes import Box
from meshwright_trainer.checkpoint.errors import CorruptCheckpoint

MANIFEST: Final = "manifest.json"
"""Name of the file in the checkpoint's folder."""

VERSION: Final = 1
"""Version of the format that is written, and the newest that is read."""

_FOLDER: Final = re.compile(r"step-(\d{8,})\.a(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Name:
    """Name of a checkpoint's folder. Attempts never write into each other's folders; the newest is the greatest."""

    step: int
    """Steps that were done."""
    attempt: int
    """Process generation that wrote it."""

    def __str__(self) -> str:
        return f"step-{self.step:08d}.a{self.attempt}"

    @classmethod
    def parse(cls, folder: str) -> Name | None:
        """The name; None if the folder is something else."""
        match = _FOLDER.fullmatch(folder)
        return cls(int(match[1]), int(match[2])) if match else None


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was written."""

    bytes: int
    """Length."""
    sha256: str
    """Hash of the content, hexadecimal."""


@dataclass(frozen=True, slots=True)
class StoredBox:
    """Where one box of a tensor is."""

    file: str
    """File in the checkpoint's folder."""
    key: str
    """Name of the box in that file."""
    box: Box
    """Which part of the tensor it is."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A logical tensor."""

    shape: tuple[int, ...]
    """Shape of the whole."""
    dtype: str
    """Type in the words of safetensors: `F32`."""
    boxes: tuple[StoredBox, ...]
    """Boxes that cover it without overlap; none if it has no elements."""


@dataclass(frozen=True)
class Manifest:
    """Everything about a checkpoint but the bytes of its tensors."""

    step: int
    """Steps that were done."""
    samples: int
    """Samples that they drew."""
    attempt: int
    """Process generation that wrote it."""
    world_size: int
    """Processes that wrote it."""
    time: float
    """When it was committed, seconds since 1970."""
    run: str
    """Identity of the job; empty outside Kubernetes."""
    origin: str
    """How the run began: the policy, and what it was told to resume from."""
    history: tuple[str, ...]
    """Older checkpoints of the same line that were kept then, oldest first."""
    section: Mapping[str, Any]
    """The trainer section that wrote it, so that a checkpoint alone says how to build its model."""
    fingerprint: Mapping[str, Any]
    """Which model, tokenizer and data."""
    scalars: Mapping[str, float | int]
    """The engine's state beside tensors."""
    files: Mapping[str, File]
    """By name."""
    tensors: Mapping[str, StoredTensor]
    """By name of the logical tensor."""

    def to_json(self) -> bytes:
        """The canonical text, with its own hash in it."""
        document = {
            "version": VERSION,
            **{name: value for name, value in vars(self).items() if name not in ("files", "tensors")},
            "files": {name: asdict(file) for name, file in self.files.items()},
            "tensors": {name: _tensor_to_json(tensor) for name, tensor in self.tensors.items()},
        }
        return _canonical({**document, "sha256": hashlib.sha256(_canonical(document)).hexdigest()})

    @classmethod
    def from_json(cls, content: bytes, where: str) -> Manifest:
        """Reads a manifest.

        Raises:
            CorruptCheckpoint: it is not what was written, or newer than this reader; `where` is named.
        """
        try:
            document = json.loads(content)
            version, sha256 = document["version"], document.pop("sha256")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptCheckpoint(f"{where} is no manifest: {error!r:.200}") from error
        if version != VERSION:
            raise CorruptCheckpoint(f"{where} is of version {version}, this reader of {VERSION}: use another image")
        if hashlib.sha256(_canonical(document)).hexdigest() != sha256:
            raise CorruptCheckpoint(f"{where} does not have the hash that it says it has: it was changed or damaged")
        return cls(
            **{name: document[name] for name in ("step", "samples", "attempt", "world_size", "time", "run", "origin")},
            history=tuple(document["history"]),
            section=document["section"],
            fingerprint=document["fingerprint"],
            scalars=document["scalars"],
            files={name: File(**file) for name, file in document["files"].items()},
            tensors={name: _tensor_from_json(tensor) for name, tensor in document["tensors"].items()},
        )


def _canonical(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _tensor_to_json(tensor: StoredTensor) -> dict[str, Any]:
    boxes = [
        {"file": b.file, "key": b.key, "offsets": list(b.box.offsets), "sizes": list(b.box.sizes)} for b in tensor.boxes
    ]
    return {"shape": list(tensor.shape), "dtype": tensor.dtype, "boxes": boxes}


def _tensor_from_json(document: Mapping[str, Any]) -> StoredTensor:
    boxes = tuple(
        StoredBox(b["file"], b["key"], Box(tuple(b["offsets"]), tuple(b["sizes"]))) for b in document["boxes"]
    )
    return StoredTensor(tuple(document["shape"]), document["dtype"], boxes)
