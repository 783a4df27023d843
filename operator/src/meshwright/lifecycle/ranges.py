"""Sets of indexes as text: `0-3,7`. What a status holds of a gang must not grow with its pods."""

from __future__ import annotations

from collections.abc import Iterable


def format_ranges(indexes: Iterable[int]) -> str:
    """The shortest list of ascending ranges that holds exactly these indexes."""
    parts: list[tuple[int, int]] = []
    for index in sorted(set(indexes)):
        if parts and parts[-1][1] == index - 1:
            parts[-1] = (parts[-1][0], index)
        else:
            parts.append((index, index))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def parse_ranges(text: str) -> frozenset[int]:
    """The indexes of `format_ranges`. Raises ValueError for anything else."""
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)
