"""A gang of writers in one process, and a state whose value tells the step that it is of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from meshwright_api.trainer import Resume
from meshwright_api.trainer_config import CheckpointConfig
from meshwright_trainer.checkpoint.fingerprint import Fingerprint
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.checkpoint.reader import Checkpoint
from meshwright_trainer.checkpoint.resume import Start, begin
from meshwright_trainer.checkpoint.storage import LocalStorage
from meshwright_trainer.checkpoint.writer import Writer

FINGERPRINT = Fingerprint({"family": "toy", "sizes": (3, 4)}, "bytes", {"sources": ["abc"], "seed": 0})

Pieces = Mapping[str, Piece]


def state(step: int) -> dict[str, Tensor]:
    """Uneven shapes, a scalar, a tensor without elements, several types."""
    return {
        "model/weight": torch.arange(15, dtype=torch.float32).reshape(5, 3) + 100 * step,
        "model/bias": torch.full((3,), step, dtype=torch.bfloat16),
        "model/scale": torch.tensor(float(step), dtype=torch.float64),
        "model/nothing": torch.empty(0, 4),
        "optimizer/exp_avg/weight": -torch.arange(15, dtype=torch.float32).reshape(5, 3) - step,
        "optimizer/mask/weight": torch.tensor([step % 2 == 0, True]),
    }


def cut(whole: Mapping[str, Tensor], ranks: int) -> list[dict[str, Piece]]:
    """Dim 0 in chunks as `torch.chunk` cuts it (the last ranks may get nothing); scalars are rank 0's."""
    gang: list[dict[str, Piece]] = [{} for _ in range(ranks)]
    for name, tensor in whole.items():
        if tensor.dim() == 0:
            for rank in range(ranks):
                gang[rank][name] = Piece((), (), tensor.clone(), owner=rank == 0)
            continue
        size = -(-len(tensor) // ranks)
        for rank in range(ranks):
            begin_at = min(rank * size, len(tensor))
            part = tensor[begin_at : begin_at + size].clone()
            offsets = (begin_at, *(0 for _ in tensor.shape[1:]))
            gang[rank][name] = Piece(tuple(tensor.shape), offsets, part)
    return gang


def config(resume: Resume = Resume.AUTO, **more: Any) -> CheckpointConfig:
    return CheckpointConfig(**{"keep": 3, "resume": resume, **more})


class Gang:
    """Writers of all ranks of one attempt."""

    def __init__(
        self,
        root: Path,
        ranks: int = 2,
        *,
        policy: CheckpointConfig | None = None,
        attempt: int | None = None,
        run: str = "",
        on_effect: Callable[[str], None] = lambda _: None,
        timeout_seconds: float = 10,
    ) -> None:
        self.storage = LocalStorage(root, on_effect)
        self.ranks = ranks
        policy = policy or config()
        self.start: Start = begin(self.storage, policy, FINGERPRINT, attempt=attempt, run=run)
        self.writers = [
            Writer(
                self.storage,
                self.start,
                rank=rank,
                world_size=ranks,
                keep=policy.keep,
                fingerprint=FINGERPRINT,
                timeout_seconds=timeout_seconds,
                now=lambda: 1000.0,
            )
            for rank in range(ranks)
        ]

    def save(self, step: int) -> None:
        """Saves the state of a step, one rank after the other and rank 0 last, so that effects have one order."""
        parts = cut(state(step), self.ranks)
        for rank in reversed(range(self.ranks)):
            self.writers[rank].save(step, 8 * step, parts[rank], {"updates": step})
            self.writers[rank].wait()

    def folders(self) -> list[str]:
        return [name for name in self.storage.names() if name.startswith("step-")]


def assert_holds(checkpoint: Checkpoint, step: int) -> None:
    """Everything in a checkpoint is of this step, read in another cut than it was written in."""
    assert (checkpoint.manifest.step, checkpoint.manifest.samples) == (step, 8 * step)
    assert checkpoint.manifest.scalars == {"updates": step}
    pieces = cut({name: torch.zeros_like(tensor) for name, tensor in state(step).items()}, 3)
    for rank in range(3):
        checkpoint.load_into(pieces[rank])
    for name, expected in state(step).items():
        parts = [pieces[rank][name].tensor for rank in range(3)]
        found = parts[0] if expected.dim() == 0 else torch.cat(parts)
        assert torch.equal(found, expected), name
