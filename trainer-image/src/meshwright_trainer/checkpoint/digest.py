"""One hash for a state, whatever cut it into files: two runs that ended equally have equal hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from meshwright_trainer.checkpoint.reader import Checkpoint


def digest(checkpoint: Checkpoint) -> str:
    """SHA-256 over all tensors of a checkpoint, weights and optimizer state. One tensor is in memory at a time.

    Raises:
        CorruptCheckpoint: a file is not what was written.
    """
    return digest_tensors(checkpoint.manifest.tensors, checkpoint.tensor)


def digest_tensors(names: Iterable[str], read: Callable[[str], Tensor]) -> str:
    """The same over tensors from anywhere: names in order, each with type, shape and elements in row-major order."""
    hashed = hashlib.sha256()
    for name in sorted(names):
        tensor = read(name).detach().cpu().contiguous()
        hashed.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        hashed.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()
