"""A picture as text for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from meshwright.picture.folding import folded, only_job, without_repeats
from meshwright.picture.model import Domain, Picture, Sited, State, ranges

_MOST: Final = 64
"""Domains of one level that are listed."""
_STATES: Final = {State.RUNS: "runs", State.WOULD_START: "would start now", State.WAITS: "waits"}
_UNITS: Final = ("B", "kB", "MB", "GB", "TB", "PB")


def topology_text(picture: Picture) -> str:
    """The tree, and a job in it if there is one."""
    rows = [_header(picture)]
    rows += _tree(folded(without_repeats(picture.root), _MOST), 0, bool(picture.job))
    lines = [*_about(picture), *columns(rows, left=(0,))]
    if picture.job:
        lines += ["", *job_lines(picture.job)]
    return "\n".join(lines)


def job_text(picture: Picture) -> str:
    """Where a job is or would be: its domains, what crosses them, or what stands in the way."""
    job = picture.job
    assert job is not None, "a picture without a job has no such text"
    lines = job_lines(job)
    if picture.root.pods:
        rows = [("DOMAIN", "PODS", "RANKS")]
        rows += _places(folded(only_job(without_repeats(picture.root)), _MOST), 0)
        lines += ["", *columns(rows, left=(0, 2))]
    return "\n".join([*lines, "", *_about(picture)])


def job_lines(job: Sited) -> list[str]:
    """A job in a few lines and a table by level."""
    mesh = " x ".join(f"{axis} {size}" for axis, size in job.mesh)
    name = f"{job.namespace}/{job.name}" if job.namespace else job.name
    lines = [
        f"{name} {_STATES[job.state]}: {_count(job.pods, 'pod')}, {_count(job.processes, 'rank')}"
        + (f", {mesh}" if mesh else "")
    ]
    if job.phase:
        lines.append(f"the operator has it as {job.phase}" + (f", {job.told}" if job.told else ""))
    if job.message:
        lines.append(f"{job.reason}: {job.message}" if job.reason else job.message)
    table: list[tuple[str, ...]] = []
    if job.crossing:
        table = [("LEVEL", "DOMAINS", "CROSSING", "WITH FIRST FIT")]
        table += [(c.level, str(c.domains), amount(c.bytes), amount(c.first_fit)) for c in job.crossing]
    elif job.rooms:
        table = [("LEVEL", "DOMAINS", "TOGETHER", "ROOM IN THE BEST", "ROOM FOR ALL IN", "THE BEST")]
        table += [
            (r.level, str(r.domains), str(r.together), str(r.best_pods), str(r.whole), r.best or "-") for r in job.rooms
        ]
    return [*lines, "", *columns(table, left=(0, 5))] if table else lines


def amount(count: float | None) -> str:
    """Bytes of a step for people."""
    if count is None:
        return "-"
    power = 0
    while count >= 999.5 and power < len(_UNITS) - 1:
        count /= 1000
        power += 1
    return f"{count:.3g} {_UNITS[power]}" if count else "0"


def _about(picture: Picture) -> list[str]:
    levels = " > ".join(level.name for level in picture.levels)
    found = " (found by the nodes' labels)" if picture.guessed else ""
    lines = [f"topology {picture.topology}{found}: {levels}"]
    lines += [f"{_count(count, 'node')} without label {key} left out" for key, count in picture.unlabelled]
    return lines


def _header(picture: Picture) -> tuple[str, ...]:
    return ("DOMAIN", "NODES", "GPUS", "FREE", "BUSY", "CLOSED", *(("JOB", "RANKS") if picture.job else ("",)))


def _tree(domain: Domain, depth: int, job: bool) -> Iterator[tuple[str, ...]]:
    gpus = domain.gpus
    counts = (domain.nodes, gpus.total, gpus.free, gpus.busy, gpus.closed)
    more = (str(gpus.job), ranges(domain.ranks) or "-") if job else (domain.note,)
    yield (_named(domain, depth), *map(str, counts), *more)
    for child in domain.children:
        yield from _tree(child, depth + 1, job)


def _places(domain: Domain, depth: int) -> Iterator[tuple[str, str, str]]:
    yield _named(domain, depth), str(domain.pods), ranges(domain.ranks) or "-"
    for child in domain.children:
        yield from _places(child, depth + 1)


def _named(domain: Domain, depth: int) -> str:
    return "  " * depth + (f"{domain.level} {domain.name}" if depth else domain.name)


def columns(rows: Sequence[Sequence[str]], left: Iterable[int]) -> list[str]:
    """Rows in columns; numbers stand at the right, the columns in `left` at the left."""
    lefts = {*left, len(rows[0]) - 1} if rows[0][-1] in ("RANKS", "") else set(left)
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i in lefts else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
