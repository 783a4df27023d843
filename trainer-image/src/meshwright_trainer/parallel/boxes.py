"""Geometry of a tensor that is spread over ranks by its first dim, as `torch.chunk` and FSDP2 do it.

Every rank has ceil(d / n) rows as far as there are any: the last ranks may have fewer, or none.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Box:
    """Rows of a logical tensor; a scalar is one row."""

    shape: tuple[int, ...]
    """Of the whole tensor."""
    start: int
    stop: int

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where the box begins, one entry per dim."""
        return (self.start, *(0 for _ in self.shape[1:])) if self.shape else ()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of the box, one entry per dim."""
        return (self.stop - self.start, *self.shape[1:]) if self.shape else ()

    @property
    def whole(self) -> bool:
        """Whether the box is the whole tensor."""
        return self.stop - self.start == (self.shape[0] if self.shape else 1)


def chunk_rows(rows: int, ranks: int) -> int:
    """Rows of the first rank: the most that any has."""
    return -(-rows // ranks)


def box_of(shape: tuple[int, ...], ranks: int = 1, rank: int = 0) -> Box:
    """The box of one rank of several; with one rank the whole tensor. A scalar cannot be split."""
    rows = shape[0] if shape else 1
    chunk = chunk_rows(rows, ranks)
    start = min(rank * chunk, rows)
    return Box(shape, start, min(start + chunk, rows))
