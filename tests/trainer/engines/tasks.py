"""What ranks of the pool do in the engine's tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from meshwright_trainer.engines.synchronous import SynchronousEngine
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.mesh import ParallelDims
from tests.trainer.parity.candidate import Placed, engine_of
from tests.trainer.parity.cells import Cell
from tests.trainer.parity.samples import whole_step, windows


def section(cell: Cell, **changes: Any) -> dict[str, Any]:
    """The cell's job with AdamW; changes are laid over it, one level deep."""
    optimizer = {
        "name": "AdamW",
        "learningRate": 3e-3,
        "weightDecay": 0.1,
        "learningRateSchedule": {"name": "Cosine", "warmupSteps": 3, "decaySteps": 30},
        "maxGradNorm": 0.5,
    }
    job = {**cell.section(), "optimizer": optimizer, "steps": 30}
    for name, change in changes.items():
        job[name] = {**job.get(name, {}), **change} if isinstance(change, Mapping) else change
    return job


def placed(tensors: Mapping[str, Any]) -> dict[str, tuple[tuple[int, ...], Placed]]:
    """Shapes, offsets and values of pieces."""
    return {n: (p.shape, (p.offsets, p.tensor.detach().numpy().copy())) for n, p in tensors.items()}


def train(cell: Cell, job: dict[str, Any], steps: int) -> tuple[list[Any], dict[str, Any], dict[str, Any]]:
    """Trains from the beginning: results, pieces and scalars."""
    engine = engine_of(cell, job)
    results = advance(engine, cell, 1, steps)
    return results, placed(engine.pieces()), dict(engine.scalars())


def advance(engine: SynchronousEngine, cell: Cell, first: int, last: int) -> list[Any]:
    """Runs some steps."""
    rank = dist.get_rank()
    return [engine.run(windows(cell, whole_step(cell, step), step)[rank]) for step in range(first, last + 1)]


def resume(cell: Cell, job: dict[str, Any], steps: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pieces after training straight on, and after a second engine got the first one's state half-way."""
    engine = engine_of(cell, job)
    advance(engine, cell, 1, steps // 2)
    kept = {name: piece.tensor.clone() for name, piece in engine.pieces().items()}
    scalars = dict(engine.scalars())
    advance(engine, cell, steps // 2 + 1, steps)
    # Another seed: nothing of the second engine's own beginning may be left.
    other = engine_of(cell, {**job, "seed": job["seed"] + 1})
    other._config = engine._config
    for name, piece in other.pieces().items():
        piece.tensor.copy_(kept[name])
    other.restore(scalars)
    advance(other, cell, steps // 2 + 1, steps)
    return placed(engine.pieces()), placed(other.pieces())


def overflow(cell: Cell, job: dict[str, Any], rank_with_fault: int) -> dict[str, Any]:
    """A good step, one in which a single rank's gradient is infinite, and a good one."""
    engine = engine_of(cell, job)
    advance(engine, cell, 1, 1)
    before, scalars = placed(engine.pieces()), dict(engine.scalars())
    objective, faulty = engine._objective, _Exploding()
    if dist.get_rank() == rank_with_fault:
        engine._objective = faulty.around(objective)
    (skipped,) = advance(engine, cell, 2, 2)
    after, scalars_after = placed(engine.pieces()), dict(engine.scalars())
    engine._objective = objective
    (good,) = advance(engine, cell, 3, 3)
    return {
        "before": before, "after": after, "scalars": scalars, "scalars_after": scalars_after, "skipped": skipped,
        "good": good,
    }  # fmt: skip


class _Exploding:
    """An objective whose loss is infinite."""

    def around(self, objective: Any) -> Any:
        self.prepare, self.weight, self._inner = objective.prepare, objective.weight, objective
        return self

    def __call__(self, output: Tensor, batch: Any) -> Any:
        loss = self._inner(output, batch)
        return replace(loss, sum=loss.sum * float("inf"))


def empty_window(cell: Cell, job: dict[str, Any]) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """A step without a single target."""
    engine = engine_of(cell, job)
    before = placed(engine.pieces())
    batch = whole_step(cell, 1)
    batch.weights.zero_()
    result = engine.run(windows(cell, batch, 1)[dist.get_rank()])
    return result, before, placed(engine.pieces())


def evaluate(cell: Cell, job: dict[str, Any]) -> tuple[Any, Any, Any]:
    """Evaluations before and after a step, and the step between."""
    engine = engine_of(cell, job)
    held_out = windows(cell, whole_step(cell, 9), 9)[dist.get_rank()].micro_batches
    first = engine.evaluate(held_out)
    (result,) = advance(engine, cell, 1, 1)
    return first, result, engine.evaluate(held_out)


def local_bytes(cell: Cell, job: dict[str, Any]) -> tuple[int, int, int]:
    """Bytes of parameters and of optimizer state on this rank, and elements of the model."""
    engine = engine_of(cell, job)
    advance(engine, cell, 1, 1)
    module: Any = engine._layout._module  # type: ignore[attr-defined]
    held = [p.to_local() if hasattr(p, "to_local") else p for p in module.parameters()]
    state = [p.tensor for n, p in engine.pieces().items() if n.startswith("optimizer/")]
    return _bytes(held), _bytes(state), sum(p.numel() for p in module.parameters())


def _bytes(tensors: list[Tensor]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


def canonical(cell: Cell, steps: int) -> dict[str, Any]:
    """Pieces after training in canonical order."""
    job = section(cell, determinism="Canonical", precision="FP32")
    return train(cell, job, steps)[1]


def mesh_places(cell: Cell) -> tuple[int, int, int, list[int]]:
    """Where this rank stands, and the ranks of its batch group in order."""
    dims = ParallelDims(data=cell.data, shard=cell.shard, shard_stage=cell.stage)
    mesh = dims.build(torch.device("cpu"))
    return mesh.data_rank, mesh.shard_rank, dims.batch_rank(dist.get_rank()), dist.get_process_group_ranks(mesh.batch)


def mesh_on(cell: Cell, device: str) -> str:
    """Why a mesh is refused on a device."""
    with pytest.raises(InvalidLaunch) as caught:
        ParallelDims(data=cell.data, shard=cell.shard, shard_stage=cell.stage).build(torch.device(device))
    return str(caught.value)
