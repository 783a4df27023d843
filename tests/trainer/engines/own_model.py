"""A model such as a user brings: no plan, a tie across its layers, a layer that only sometimes runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright_api.trainer_config import trainer_config
from meshwright_trainer.batch import Batch
from meshwright_trainer.engines.synchronous import SynchronousEngine, build_engine
from meshwright_trainer.mesh import ParallelDims
from meshwright_trainer.models.base import Model
from meshwright_trainer.objectives.next_token import NextToken
from meshwright_trainer.random import Key
from tests.trainer.engines.tasks import advance, placed
from tests.trainer.parity.cells import Cell


class Tied(nn.Module):
    """Embedding and head are members of a list and share their weight."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        embedding, head = nn.Embedding(vocabulary, 6), nn.Linear(6, vocabulary, bias=False)
        head.weight = embedding.weight
        self.layers = nn.ModuleList([embedding, nn.Linear(6, 6), nn.LayerNorm(6), head])

    def forward(self, batch: Batch, key: Key) -> Tensor:
        """Logits, (B, T, V)."""
        x = batch.tokens
        for layer in self.layers:
            x = layer(x)
        return x


class Sometimes(nn.Module):
    """A layer that no forward pass uses."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.used = nn.Embedding(vocabulary, vocabulary)
        self.unused = nn.Linear(3, 3)

    def forward(self, batch: Batch, key: Key) -> Tensor:
        """Logits, (B, T, V)."""
        return F.log_softmax(self.used(batch.tokens), -1)


class Normalised(nn.Module):
    """Keeps running statistics, and a table that is no state."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, vocabulary)
        self.norm = nn.BatchNorm1d(vocabulary)
        self.register_buffer("table", torch.ones(3), persistent=False)

    def forward(self, batch: Batch, key: Key) -> Tensor:
        """Logits, (B, T, V)."""
        return self.norm(self.embedding(batch.tokens).transpose(1, 2)).transpose(1, 2)


@dataclass(frozen=True)
class Run:
    """What a rank saw."""

    begun: dict[str, Any]
    ended: dict[str, Any]
    losses: list[float]


def engine_of(cell: Cell, kind: str, meta: bool) -> SynchronousEngine:
    """An engine with one of the models."""
    config = trainer_config(cell.section(), cell.ranks)
    with torch.device("meta" if meta else "cpu"):
        module = {"Tied": Tied, "Sometimes": Sometimes, "Normalised": Normalised}[kind](cell.vocabulary)
    dims = ParallelDims.of(config.parallelism, cell.ranks)
    return build_engine(config, dims, Model(module, "NextToken"), NextToken(), torch.device("cpu"))


def train(cell: Cell, kind: str, meta: bool) -> Run:
    """Three steps."""
    engine = engine_of(cell, kind, meta)
    begun = placed(engine.pieces())
    results = advance(engine, cell, 1, 3)
    return Run(begun, placed(engine.pieces()), [r.loss for r in results])


def resume(cell: Cell) -> tuple[dict[str, Any], dict[str, Any]]:
    """Pieces after four steps, and after a second engine went on from the first one's after two."""
    engine = engine_of(cell, "Normalised", False)
    advance(engine, cell, 1, 2)
    kept = {name: piece.tensor.clone() for name, piece in engine.pieces().items()}
    scalars = dict(engine.scalars())
    advance(engine, cell, 3, 4)
    second = engine_of(cell, "Normalised", False)
    with torch.no_grad():
        for name, piece in second.pieces().items():
            piece.tensor.copy_(kept[name])
    second.restore(scalars)
    advance(second, cell, 3, 4)
    return placed(engine.pieces()), placed(second.pieces())
