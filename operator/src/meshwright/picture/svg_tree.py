"""Draws the tree: boxes in boxes down to nodes with their GPUs; what is folded is a tile with a bar."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from typing import Final

from meshwright.picture.model import Domain, Gpus, Sited, ranges
from meshwright.picture.svg_parts import Part, flow, label, rect, shortened, told

STAGES: Final = 8
"""Colours there are for positions along the outermost axis of a mesh."""
_PAD: Final = 8.0
_HEADER: Final = 20.0
_SQUARE: Final = 9.0
_PITCH: Final = 11.0
_NODE_WIDTH: Final = 48.0
_TILE: Final = (152.0, 42.0)


@dataclass(frozen=True, slots=True)
class Colours:
    """Which of the job's colours a rank has."""

    axis: str = ""
    """The axis that is coloured; empty if all ranks have one colour."""
    size: int = 1
    ranks: int = 1

    @classmethod
    def of(cls, job: Sited | None) -> Colours:
        """By the outermost axis of the mesh, since that is what placement parts first."""
        if job is None or not job.mesh or math.prod(size for _, size in job.mesh) != job.processes:
            return cls()
        axis, size = job.mesh[0]
        return cls(axis, size, job.processes) if size <= STAGES else cls()

    def style(self, rank: int) -> str:
        """Name of the colour."""
        return f"job{rank * self.size // self.ranks}"


def tree(root: Domain, colours: Colours, width: float) -> Part:
    """The whole, at most that wide."""
    if root.is_node:
        return _node(root, colours)
    if not root.children:
        return _tile(root, colours)
    # Domains that are alone in theirs share its box.
    names = [_name(root)]
    while len(root.children) == 1 and root.children[0].children:
        root = root.children[0]
        names.append(_name(root))
    inner = width - 2 * _PAD
    # What is drawn in detail comes first, so that the tiles stand together.
    ordered = sorted(root.children, key=lambda child: not child.children and not child.is_node)
    children = [tree(child, colours, inner) for child in ordered]
    nodes = ordered[0].is_node
    square = math.ceil(math.sqrt(1.5 * len(children))) if nodes else len(children)
    content = flow(children, inner, square)
    name = " / ".join(names)
    free = f"{root.gpus.free} of {root.gpus.total} free"
    wide = max(content.width + 2 * _PAD, _width_of(name) + _width_of(free) + 4 * _PAD)
    high = _HEADER + content.height + _PAD
    drawn = [
        rect(0, 0, wide, high, "job-box" if root.pods else "box", 6),
        label(_PAD, 14, name, "head"),
        label(wide - _PAD, 14, free, "small", end=True),
        content.at(_PAD, _HEADER),
    ]
    return Part(wide, high, "".join(drawn))


def _name(domain: Domain) -> str:
    return domain.name if domain.name.startswith(domain.level) else f"{domain.level} {domain.name}"


def _width_of(text: str) -> float:
    return 6.4 * len(text)


def _node(node: Domain, colours: Colours) -> Part:
    """A node: a square for every GPU, and the ranks below them."""
    styles = _squares(node, colours)
    columns = 4 if len(styles) <= 8 else 8
    rows = max(1, -(-len(styles) // columns))
    width = max(_NODE_WIDTH, columns * _PITCH + 4)
    height = rows * _PITCH + 16
    left = (width - columns * _PITCH + _PITCH - _SQUARE) / 2
    drawn = [rect(0, 0, width, height, "node closed-node" if node.note else "node", 3)]
    for i, style in enumerate(styles):
        x, y = left + i % columns * _PITCH, 3 + i // columns * _PITCH
        drawn.append(rect(x, y, _SQUARE, _SQUARE, style, 1))
    below = ranges(node.ranks) or ("" if styles else "no GPU")
    drawn.append(label(width / 2, height - 4, shortened(below, int(width // 5)), "ranks"))
    words = [node.name, _counted(node.gpus), node.note, f"ranks {ranges(node.ranks)}" if node.ranks else ""]
    return Part(width, height, told("".join(drawn), ", ".join(filter(None, words))))


def _squares(node: Domain, colours: Colours) -> list[str]:
    """The style of every GPU: the job's first, then what others have, then the rest."""
    gpus, ranks = node.gpus, node.ranks
    mine = [colours.style(ranks[i * len(ranks) // gpus.job]) if ranks else "job0" for i in range(gpus.job)]
    return [*mine, *["busy"] * gpus.busy, *["closed"] * gpus.closed, *["free"] * gpus.free]


def _tile(domain: Domain, colours: Colours) -> Part:
    """A domain that is not drawn in detail."""
    width, height = _TILE
    inner = width - 2 * _PAD
    drawn = [
        rect(0, 0, width, height, "job-box" if domain.pods else "box", 4),
        label(_PAD, 15, shortened(domain.name, 13), "name"),
        label(width - _PAD, 15, f"{domain.gpus.free}/{domain.gpus.total}", "small", end=True),
        _bar(domain, colours, _PAD, 22, inner, 8),
    ]
    if domain.ranks:
        drawn.append(label(_PAD, 39, shortened("ranks " + ranges(domain.ranks), 28), "tiny"))
    words = [f"{domain.level} {domain.name}", f"{domain.nodes} nodes", _counted(domain.gpus)]
    if domain.ranks:
        words.append(f"ranks {ranges(domain.ranks)}")
    return Part(width, height, told("".join(drawn), ", ".join(words)))


def _bar(domain: Domain, colours: Colours, x: float, y: float, width: float, height: float) -> str:
    """Shares of the GPUs."""
    drawn = [rect(x, y, width, height, "free", 1)]
    counts = Counter(_squares(domain, colours))
    for style, count in counts.items():
        if style != "free":
            drawn.append(rect(x, y, width * count / domain.gpus.total, height, style))
            x += width * count / domain.gpus.total
    return "".join(drawn)


def _counted(gpus: Gpus) -> str:
    if not gpus.total:
        return "no GPUs"
    parts = ((gpus.job, "of the job"), (gpus.busy, "busy"), (gpus.free, "free"), (gpus.closed, "closed"))
    return f"{gpus.total} GPUs: " + ", ".join(f"{count} {what}" for count, what in parts if count)
