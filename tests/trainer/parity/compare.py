"""Compares a cell's ranks with the reference.

The metric is d = max|g - g*| / max(max|g*|, 1e-6 max|G*|) for each tensor, where G* are all of them: a key's bias has a
gradient of 0 in theory, so a plain relative error would compare noise with noise.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tests.trainer.parity import reference
from tests.trainer.parity.candidate import Placed, RankTrace
from tests.trainer.parity.cells import Cell
from tests.trainer.pool import Pool

GOAL = 1e-12
TASK = "tests.trainer.parity.candidate:run"


@dataclass(frozen=True)
class Report:
    """What a comparison came to."""

    cell: Cell
    gradients: float
    """d of the first step's gradients, before clipping."""
    parameters: float
    """d of the parameters after three steps."""
    norms: float
    """Largest relative error of norm, loss and weight of any step."""
    bytes_by_axis: Mapping[str, int]
    held: float
    updated: float
    nonzero: str
    """Tensors with a gradient, of how many."""
    targets: bool
    """Whether the first step has any: a masked-token objective may hide nothing of few tokens."""

    @property
    def d(self) -> float:
        """The largest of all."""
        return max(self.gradients, self.parameters, self.norms)

    def problems(self) -> list[str]:
        """Why the cell is not right."""
        found = [f"d = {self.d:.1e} is above {GOAL:.0e}"] if not self.d <= GOAL else []
        axes = {"data": self.cell.data, "shard": self.cell.shard}
        found += [f"nothing was sent along {a}" for a, n in axes.items() if n > 1 and not self.bytes_by_axis.get(a)]
        if self.cell.stage >= 1 and self.updated > 1.5 / self.cell.shard:
            found.append(f"a rank updates {self.updated:.2f} of the parameters")
        if self.cell.stage >= 2 and self.held > 1.5 / self.cell.shard:
            found.append(f"a rank holds {self.held:.2f} of the parameters")
        have, _, all_of_them = self.nonzero.partition("/")
        if self.targets and have != all_of_them:
            found.append(f"only {self.nonzero} tensors have a gradient")
        return found

    def __str__(self) -> str:
        sent = " ".join(f"{axis}:{count}" for axis, count in sorted(self.bytes_by_axis.items())) or "none"
        return (
            f"d={self.d:.1e} (gradients {self.gradients:.1e}, after 3 steps {self.parameters:.1e}, norm "
            f"{self.norms:.1e}) bytes_by_axis={sent} local_parameter_bytes/total={self.held:.2f} "
            f"updated/total={self.updated:.2f} nonzero={self.nonzero} seed={self.cell.seed}"
        )


def compare(pool: Pool, cell: Cell) -> Report:
    """Runs a cell."""
    traces: list[RankTrace] = pool.run(cell.ranks, TASK, cell)
    return report(cell, traces, oracle(replace(cell, stage=0, recompute=False)))


@functools.cache
def oracle(cell: Cell) -> reference.Trace:
    """The reference of all cells that differ only in what must not matter."""
    return reference.train(cell)


def report(cell: Cell, traces: Sequence[RankTrace], expected: reference.Trace) -> Report:
    """Compares what the ranks returned."""
    shapes = traces[0].shapes
    gradients = {name: whole(shapes[name], [t.gradients[name] for t in traces]) for name in shapes}
    parameters = {name: whole(shapes[name], [t.parameters[name] for t in traces]) for name in shapes}
    numbers = [(t.losses, expected.losses) for t in traces]
    numbers += [(t.norms, expected.norms) for t in traces] + [(t.weights, expected.weights) for t in traces]
    return Report(
        cell,
        distance(gradients, {n: g.numpy() for n, g in expected.gradients.items()}),
        distance(parameters, {n: p.numpy() for n, p in expected.parameters.items()}),
        max(abs(a - b) / max(abs(b), 1e-30) for ours, theirs in numbers for a, b in zip(ours, theirs, strict=True)),
        traces[0].bytes_by_axis,
        max(t.held for t in traces),
        max(t.updated for t in traces),
        f"{sum(bool(np.any(g)) for g in gradients.values())}/{len(gradients)}",
        expected.weights[0] > 0,
    )


def whole(shape: tuple[int, ...], boxes: Sequence[Placed]) -> Any:
    """A tensor put together from the ranks' boxes; replicas must have the same bits."""
    filled = np.full(shape, np.nan)
    for offsets, values in boxes:
        place = tuple(slice(o, o + n) for o, n in zip(offsets, values.shape, strict=True))
        before = filled[place]
        assert np.all(np.isnan(before) | (before == values)), "replicas differ"
        filled[place] = values
    assert not np.any(np.isnan(filled)), "a part is missing"
    return filled


def distance(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> float:
    """The largest d of any tensor."""
    assert set(ours) == set(theirs), "not the same parameters"
    largest = max(float(np.max(np.abs(t))) for t in theirs.values()) or 1.0
    return max(
        float(np.max(np.abs(ours[n] - t))) / max(float(np.max(np.abs(t))), 1e-6 * largest) for n, t in theirs.items()
    )
