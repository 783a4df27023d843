"""What is compared with the reference: the engine, on this rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright_api.trainer_config import trainer_config
from meshwright_trainer.collectives.ledger import Ledger
from meshwright_trainer.engines.synchronous import SynchronousEngine, build_engine
from meshwright_trainer.mesh import ParallelDims
from tests.trainer.parity.cells import Cell
from tests.trainer.parity.reference import parts
from tests.trainer.parity.samples import whole_step, windows

Placed = tuple[tuple[int, ...], Any]
"""Offsets of a box, and its values as a NumPy array."""


@dataclass(frozen=True)
class RankTrace:
    """One rank's view of the three steps."""

    losses: list[float]
    weights: list[float]
    norms: list[float]
    gradients: dict[str, Placed]
    parameters: dict[str, Placed]
    shapes: dict[str, tuple[int, ...]]
    bytes_by_axis: dict[str, int]
    held: float
    """Share of the parameters' bytes that lies on this rank between two steps."""
    updated: float
    """Share of the parameters' elements that this rank updates."""


def engine_of(cell: Cell, section: dict[str, Any] | None = None) -> SynchronousEngine:
    """The cell's engine on this rank."""
    config = trainer_config(section or cell.section(), cell.ranks)
    model, objective = parts(cell, config)
    dims = ParallelDims.of(config.parallelism, cell.ranks)
    return build_engine(config, dims, model, objective, torch.device("cpu"))


def run(cell: Cell, steps: int = 3) -> RankTrace:
    """Trains on this rank."""
    engine = engine_of(cell)
    slices = [s for s in engine._layout.slices if s.trainable]
    first: list[list[Tensor]] = []
    gradients = engine._layout.gradients

    def recorded() -> list[Tensor]:
        found = gradients()
        first.append([g.clone() for g in found])
        return found

    engine._layout.gradients = recorded  # type: ignore[method-assign]
    with Ledger(engine.mesh) as ledger:
        results = [
            engine.run(windows(cell, whole_step(cell, step), step)[dist.get_rank()]) for step in range(1, steps + 1)
        ]
    module: Any = engine._layout._module  # type: ignore[attr-defined]
    total = sum(p.numel() for p in module.parameters())
    local = sum((p.to_local() if hasattr(p, "to_local") else p).numel() for p in module.parameters())
    return RankTrace(
        [r.loss for r in results],
        [r.weight for r in results],
        [r.norm for r in results],
        {s.name: (s.box.offsets, g.numpy()) for s, g in zip(slices, first[0], strict=True)},
        {s.name: (s.box.offsets, s.tensor.numpy().copy()) for s in slices},
        {s.name: s.box.shape for s in slices},
        dict(ledger.bytes_by_axis),
        local / total,
        sum(s.tensor.numel() for s in slices) / total,
    )
