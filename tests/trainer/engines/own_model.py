"""Models such as a user brings: no plan, a tie across its layers, parts that only sometimes run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from meshwright_api.trainer_config import trainer_config
from meshwright_trainer.batch import Batch
from meshwright_trainer.engines.synchronous import SynchronousEngine, build_engine
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.mesh import ParallelDims
from meshwright_trainer.models.base import Init, Model, ModelPlan
from meshwright_trainer.models.units import unit_names
from meshwright_trainer.objectives.next_token import NextToken
from meshwright_trainer.random import Key
from tests.trainer.engines.tasks import advance, placed
from tests.trainer.parity.cells import Cell
from tests.trainer.parity.samples import whole_step, windows


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


class Chooses(nn.Module):
    """Two heads of equal size, of which a micro-batch runs one."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 6)
        self.heads = nn.ModuleList([nn.Linear(6, vocabulary), nn.Linear(6, vocabulary)])

    def forward(self, batch: Batch, key: Key) -> Tensor:
        """Logits, (B, T, V)."""
        logits: Tensor = self.heads[choice(batch)](self.embedding(batch.tokens))
        return logits


class RunsBoth(Chooses):
    """Runs both heads and uses one, so that ranks differ in the backward pass alone."""

    def forward(self, batch: Batch, key: Key) -> Tensor:
        """Logits, (B, T, V)."""
        x = self.embedding(batch.tokens)
        logits: Tensor = [head(x) for head in self.heads][choice(batch)]
        return logits


class Both(nn.Module):
    """Two layers of equal size, of which one is used."""

    def __init__(self, width: int, out: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(width, out), nn.Linear(width, out)

    def forward(self, x: Tensor, which: int) -> Tensor:
        """Of (B, T, width), (B, T, out)."""
        out: Tensor = (self.first, self.second)[which](x)
        return out


class ChoosesWithin(nn.Module):
    """The choice is made within a unit, and in what is no unit."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.embeddings = nn.ParameterDict({str(i): torch.randn(vocabulary, 6) for i in range(2)})
        self.heads = nn.ModuleList([Both(6, vocabulary)])

    def forward(self, batch: Batch, key: Key) -> Tensor:
        """Logits, (B, T, V)."""
        which = choice(batch)
        logits: Tensor = self.heads[0](F.embedding(batch.tokens, self.embeddings[str(which)]), which)
        return logits


def choice(batch: Batch) -> int:
    """0 or 1: micro-batches 0 to 3, of 2 samples each, choose 0, 1, 1, 0: two ranks differ in each, and not in both."""
    number = int(batch.sample_id[0]) // 2
    return (number + number // 2) % 2


MODELS: dict[str, type[nn.Module]] = {
    m.__name__: m for m in (Tied, Sometimes, Normalised, Chooses, RunsBoth, ChoosesWithin)
}


@dataclass(frozen=True)
class Run:
    """What a rank saw."""

    begun: dict[str, Any]
    ended: dict[str, Any]
    losses: list[float]


def engine_of(cell: Cell, kind: str, meta: bool, planned: bool = False, **job: Any) -> SynchronousEngine:
    """An engine with one of the models; if planned, its factory returned a `Model` with a plan."""
    own = {"model": {"factory": f"{__name__}:{kind}"}} if planned else {}
    config = trainer_config({**cell.section(), **own, **job}, cell.ranks)
    with torch.device("meta" if meta else "cpu"):
        module = MODELS[kind](cell.vocabulary)
    plan = ModelPlan(unit_names(module, None), {"*": Init()}) if planned else None
    dims = ParallelDims.of(config.parallelism, cell.ranks)
    return build_engine(config, dims, Model(module, "NextToken", plan), NextToken(), torch.device("cpu"))


def train(cell: Cell, kind: str, meta: bool = False, planned: bool = False, determinism: str = "Strict") -> Run:
    """Three steps."""
    engine = engine_of(cell, kind, meta, planned, determinism=determinism)
    begun = placed(engine.pieces())
    results = advance(engine, cell, 1, 3)
    return Run(begun, placed(engine.pieces()), [r.loss for r in results])


def refused(cell: Cell, kind: str, planned: bool = False, evaluated: bool = False) -> str:
    """Why a step, or an evaluation, is refused."""
    engine = engine_of(cell, kind, False, planned)
    begun = placed(engine.pieces())
    window = windows(cell, whole_step(cell, 1), 1)[dist.get_rank()]
    with pytest.raises(InvalidLaunch) as caught:
        engine.evaluate(window.micro_batches) if evaluated else engine.run(window)
    assert all(np.array_equal(begun[n][1][1], p.tensor) for n, p in engine.pieces().items()), "weights were changed"
    return str(caught.value)


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
