"""Pieces of a drawing: each knows its size, and is put at its place by who draws it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from xml.sax.saxutils import escape

GAP: Final = 8.0


@dataclass(frozen=True, slots=True)
class Part:
    """Something drawn, with its upper left corner at 0, 0."""

    width: float
    height: float
    text: str

    def at(self, x: float, y: float) -> str:
        """The part moved to a place."""
        return f'<g transform="translate({number(x)} {number(y)})">{self.text}</g>'


def number(value: float) -> str:
    """A coordinate, short."""
    return f"{value:.1f}".removesuffix(".0")


def rect(x: float, y: float, width: float, height: float, style: str, radius: float = 0) -> str:
    """A rectangle of a style."""
    corners = f' rx="{number(radius)}"' if radius else ""
    size = f'width="{number(width)}" height="{number(height)}"'
    return f'<rect x="{number(x)}" y="{number(y)}" {size}{corners} class="{style}"/>'


def label(x: float, y: float, text: str, style: str = "", *, end: bool = False) -> str:
    """A line of text that begins, or ends, at a point."""
    classes = f' class="{style}"' if style else ""
    anchor = ' text-anchor="end"' if end else ""
    return f'<text x="{number(x)}" y="{number(y)}"{classes}{anchor}>{escape(text)}</text>'


def told(part: str, words: str) -> str:
    """A part that says something when a pointer rests on it."""
    return f"<g><title>{escape(words)}</title>{part}</g>"


def shortened(text: str, most: int) -> str:
    """A text of at most so many characters."""
    return text if len(text) <= most else text[: most - 1] + "…"


def flow(parts: Sequence[Part], width: float, most_in_row: int) -> Part:
    """Parts in rows: neighbours of one width in rows of equal length, and such blocks beside each other.

    Args:
        parts: at least one.
        width: of the place for them; a single part may be wider.
        most_in_row: no row of a block has more.
    """
    blocks = [_block(list(alike), width, most_in_row) for _, alike in groupby(parts, key=lambda part: part.width)]
    drawn, x, y, right, bottom = [], 0.0, 0.0, 0.0, 0.0
    for block in blocks:
        if x and x + block.width > width:
            x, y = 0.0, bottom + GAP
        drawn.append(block.at(x, y))
        x += block.width + GAP
        right, bottom = max(right, x - GAP), max(bottom, y + block.height)
    return Part(right, bottom, "".join(drawn))


def _block(parts: Sequence[Part], width: float, most_in_row: int) -> Part:
    fitting = max(1, int((width + GAP) // (parts[0].width + GAP)))
    rows = -(-len(parts) // min(fitting, most_in_row))
    columns = -(-len(parts) // rows)
    drawn, y = [], 0.0
    for first in range(0, len(parts), columns):
        row = parts[first : first + columns]
        drawn += [part.at(i * (part.width + GAP), y) for i, part in enumerate(row)]
        y += max(part.height for part in row) + GAP
    return Part(columns * (parts[0].width + GAP) - GAP, y - GAP, "".join(drawn))


def stacked(parts: Iterable[Part], gap: float) -> Part:
    """Parts below each other."""
    drawn, y, width = [], 0.0, 0.0
    for part in parts:
        drawn.append(part.at(0, y))
        y += part.height + gap
        width = max(width, part.width)
    return Part(width, y - gap, "".join(drawn))
