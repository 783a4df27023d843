"""Boxes of a tensor: where two of them meet. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Box:
    """A contiguous part of every dim."""

    offsets: tuple[int, ...]
    """Where it begins, one entry per dim."""
    sizes: tuple[int, ...]
    """How long it is, one entry per dim; a size of 0 makes it empty."""

    @property
    def volume(self) -> int:
        """Elements in it; 1 for a scalar."""
        volume = 1
        for size in self.sizes:
            volume *= size
        return volume

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether it lies within a tensor of this shape. An empty box may begin anywhere."""
        if not len(self.offsets) == len(self.sizes) == len(shape):
            return False
        if self.volume == 0:
            return True
        return all(
            offset >= 0 and offset + size <= whole
            for offset, size, whole in zip(self.offsets, self.sizes, shape, strict=True)
        )

    def meet(self, other: Box) -> Box | None:
        """The box that both have in common; None if they have nothing in common."""
        ranges = [
            (max(a, b), min(a + a_size, b + b_size))
            for a, a_size, b, b_size in zip(self.offsets, self.sizes, other.offsets, other.sizes, strict=True)
        ]
        if any(begin >= end for begin, end in ranges):
            return None
        return Box(tuple(begin for begin, _ in ranges), tuple(end - begin for begin, end in ranges))

    def slices_in(self, outer: Box) -> tuple[slice, ...]:
        """How to index a tensor that holds `outer` to get this box."""
        return tuple(
            slice(offset - origin, offset - origin + size)
            for offset, origin, size in zip(self.offsets, outer.offsets, self.sizes, strict=True)
        )
