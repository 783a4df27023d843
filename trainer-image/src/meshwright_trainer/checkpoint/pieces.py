"""A rank's part of a logical tensor: what writers write and readers fill, whatever sharded it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Piece:
    """A box of a logical tensor. Boxes of different ranks are equal (replicas) or do not overlap."""

    shape: tuple[int, ...]
    """Shape of the whole tensor."""
    offsets: tuple[int, ...]
    """Where the box begins, one entry per dim."""
    tensor: Tensor
    """The box: a live view, contiguous; may be empty where a dim does not divide."""
    owner: bool = True
    """Whether this rank writes the box; exactly one of its replicas does."""
    frozen: bool = False
    """Whether training never changes it."""
