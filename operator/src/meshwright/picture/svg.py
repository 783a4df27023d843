"""A picture as SVG: the tree, a legend, and by level what crosses it beside what would with first fit.

One file that shows in any browser and on any page: no script, no fonts from elsewhere, colours that differ in
lightness too.
"""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import Final
from xml.sax.saxutils import escape

from meshwright.picture.folding import folded, without_repeats
from meshwright.picture.model import Crossing, Picture, Sited, State
from meshwright.picture.svg_parts import Part, label, number, rect, stacked
from meshwright.picture.svg_tree import STAGES, Colours, tree
from meshwright.picture.text import amount

_MOST: Final = 160
"""Domains of one level that can be looked at together."""
_WIDTH: Final = 1060.0
_LEAST: Final = 680.0
"""Width of the texts around the tree."""
_MARGIN: Final = 20.0
_BAR: Final = 420.0
_LINE: Final = 120
"""Characters of a line of small text."""
_STATES: Final = {State.RUNS: "runs", State.WOULD_START: "would start here now", State.WAITS: "waits"}
_STAGES: Final = ("#2563eb", "#f59e0b", "#059669", "#db2777", "#7c3aed", "#0891b2", "#b45309", "#4d7c0f")
assert len(_STAGES) == STAGES
_STYLE: Final = "\n".join(
    [
        "  .box { fill: #ffffff; stroke: #94a3b8 } .job-box { fill: #f8fafc; stroke: #1e3a8a; stroke-width: 1.4 }",
        "  .node { fill: #f1f5f9; stroke: #cbd5e1; stroke-width: .8 } .closed-node { stroke-dasharray: 3 2 }",
        "  .free { fill: #ffffff; stroke: #16a34a } .busy { fill: #94a3b8; stroke: #64748b }",
        "  .closed { fill: #fee2e2; stroke: #dc2626; stroke-dasharray: 2 1.5 } .naive { fill: #cbd5e1 }",
        *(f"  .job{i} {{ fill: {colour}; stroke: {colour} }}" for i, colour in enumerate(_STAGES)),
        "  .title { font-size: 15px; font-weight: 600; fill: #0f172a } .head { font-weight: 600; fill: #0f172a }",
        "  .name { font-weight: 600; fill: #0f172a; font-size: 11px } .small { font-size: 11px; fill: #475569 }",
        "  .tiny { font-size: 8px; fill: #475569 } .ranks { font-size: 9px; fill: #0f172a; text-anchor: middle }",
    ]
)


def svg(picture: Picture) -> str:
    """The drawing. Equal pictures give equal text."""
    colours = Colours.of(picture.job)
    drawn = tree(folded(without_repeats(picture.root), _MOST), colours, _WIDTH - 2 * _MARGIN)
    parts = [_heading(picture), drawn, _legend(picture.job, colours)]
    if picture.job and any(c.bytes is not None for c in picture.job.crossing):
        parts.append(_crossings(picture.job.crossing))
    whole = stacked(parts, 14)
    width, height = whole.width + 2 * _MARGIN, whole.height + 2 * _MARGIN
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {number(width)} {number(height)}" role="img"'
            ' font-family="ui-sans-serif, system-ui, sans-serif" font-size="12">',
            f"<title>{escape(_title(picture))}</title>",
            f"<style>\n{_STYLE}\n</style>",
            f'<rect width="{number(width)}" height="{number(height)}" fill="#ffffff"/>',
            # A line for every element keeps changes readable in a review.
            whole.at(_MARGIN, _MARGIN).replace("<g", "\n<g"),
            "</svg>\n",
        ]
    )


def _title(picture: Picture) -> str:
    job = picture.job
    if job is None:
        gpus = picture.root.gpus
        return f"{picture.root.nodes} nodes, {gpus.total} GPUs: {gpus.free} free, {gpus.busy} busy"
    mesh = " x ".join(f"{axis} {size}" for axis, size in job.mesh)
    sizes = f"{job.processes} ranks in {job.pods} pods"
    return f"{job.name} {_STATES[job.state]}: {sizes}" + (f", {mesh}" if mesh else "")


def _heading(picture: Picture) -> Part:
    levels = ", ".join(level.name for level in picture.levels)
    under = f"topology {picture.topology}, from the outside: {levels}"
    left_out = sum(count for _, count in picture.unlabelled)
    if left_out:
        under += f"; {left_out} nodes without a label are left out"
    lines = [label(0, 13, _title(picture), "title"), label(0, 31, under, "small")]
    if picture.job and picture.job.message:
        text = f"{picture.job.reason}: {picture.job.message}"
        lines += [label(0, 47 + 15 * i, line, "small") for i, line in enumerate(wrap(text, _LINE))]
    return Part(_LEAST, 16.0 * len(lines) + 2, "".join(lines))


def _legend(job: Sited | None, colours: Colours) -> Part:
    entries = [("free", "free"), ("busy", "busy"), ("closed", "not ready or cordoned")]
    if job and job.state is not State.WAITS:
        entries = [*_job_entries(colours), *entries]
    x, drawn = 0.0, [label(0, 10, "GPUs", "head")]
    x += 44
    for style, words in entries:
        drawn += [rect(x, 1, 10, 10, style, 1), label(x + 15, 10, words, "small")]
        x += 27 + 5.8 * len(words)
    return Part(x, 14, "".join(drawn))


def _job_entries(colours: Colours) -> list[tuple[str, str]]:
    if not colours.axis:
        return [("job0", "of the job")]
    return [(f"job{i}", f"{colours.axis} {i}") for i in range(colours.size)]


def _crossings(crossing: Sequence[Crossing]) -> Part:
    """Two bars for each level: here, and with first fit."""
    most = max(max(c.bytes or 0, c.first_fit or 0) for c in crossing) or 1
    drawn = [
        label(0, 12, "Crossing the borders of each level in a step", "head"),
        *(rect(330, 3, 10, 10, "job0", 1), label(345, 12, "here", "small")),
        *(rect(390, 3, 10, 10, "naive", 1), label(405, 12, "by first fit, in the order of node names", "small")),
    ]
    y = 22.0
    for each in crossing:
        inside = "1 domain" if each.domains == 1 else f"{each.domains} domains"
        drawn += [label(0, y + 15, each.level, "name"), label(90, y + 15, inside, "small")]
        for count, style, top in ((each.bytes, "job0", y + 2), (each.first_fit, "naive", y + 13)):
            wide = _BAR * (count or 0) / most
            drawn += [rect(170, top, wide, 8, style)] * (wide > 0)
            drawn.append(label(178 + wide, top + 8, amount(count), "small"))
        y += 31
    return Part(_LEAST, y, "".join(drawn))
