"""The copy of a rank's state that is written while training goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from meshwright_trainer.checkpoint.boxes import Box
from meshwright_trainer.checkpoint.errors import SaveError
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.checkpoint.tensor_file import DTYPES


@dataclass(frozen=True, slots=True)
class Staged:
    """A box as it was when the snapshot was taken."""

    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    box: Box
    """Which part of it."""
    tensor: Tensor
    """Its elements, on the CPU."""


class Staging:
    """Buffers that are allocated by the first snapshot and kept: pages that are touched cost less than new ones."""

    def __init__(self) -> None:
        self._buffers: dict[str, Tensor] = {}

    def snapshot(self, pieces: Mapping[str, Piece]) -> dict[str, Staged]:
        """Copies the boxes that this rank owns. The next snapshot overwrites it.

        Raises:
            SaveError: a piece does not lie within its tensor, or has a type that files cannot hold.
        """
        staged = {}
        asynchronous = False
        for name, piece in pieces.items():
            if not piece.owner:
                continue
            box = Box(piece.offsets, tuple(piece.tensor.shape))
            if not box.fits(piece.shape):
                raise SaveError(f"{name}: a box of {box.sizes} at {box.offsets} is not within {piece.shape}")
            if piece.tensor.dtype not in DTYPES:
                raise SaveError(f"{name}: {piece.tensor.dtype} cannot be kept in a checkpoint")
            source = piece.tensor.detach()
            buffer = self._buffer(name, source)
            buffer.copy_(source, non_blocking=source.is_cuda)
            asynchronous |= source.is_cuda
            staged[name] = Staged(piece.shape, box, buffer)
        if asynchronous:
            torch.cuda.synchronize()
        return staged

    def _buffer(self, name: str, source: Tensor) -> Tensor:
        kept = self._buffers.get(name)
        if kept is None or (kept.shape, kept.dtype) != (source.shape, source.dtype):
            kept = torch.empty(source.shape, dtype=source.dtype, device="cpu", pin_memory=source.is_cuda)
            self._buffers[name] = kept
        return kept
