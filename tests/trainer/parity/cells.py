"""The cells: which job is compared on which mesh. A cell prints as, and is read from, one line of key=value."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

MESHES = (
    (1, 1, 0), (2, 1, 0), (4, 1, 0),
    (1, 2, 1), (1, 4, 1), (2, 2, 1),
    (1, 2, 2), (1, 4, 2), (2, 2, 2),
    (1, 2, 3), (1, 4, 3), (2, 2, 3),
)  # fmt: skip
"""(data, shard, stage)."""
ODDITIES = ("none", "short", "masked", "tokenless")
"""What is odd in the batch: nothing; the last sample only fills up; a micro-batch, or a rank, has no targets."""


@dataclass(frozen=True)
class Cell:
    """One comparison."""

    model: str = "gpt3"
    data: int = 1
    shard: int = 1
    stage: int = 0
    accumulation: int = 1
    recompute: bool = False
    clip: bool = False
    dropout: float = 0.0
    tie: bool = True
    oddity: str = "none"
    micro: int = 2
    length: int = 7
    vocabulary: int = 37
    heads: int = 2
    width: int = 11
    layers: int = 2
    seed: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    precision: str = "FP64"

    @property
    def ranks(self) -> int:
        return self.data * self.shard * self.tensor * self.pipeline * self.context

    @property
    def samples(self) -> int:
        return self.micro * self.accumulation * self.data * self.shard

    def __str__(self) -> str:
        default = Cell()
        return ",".join(
            f"{f.name}={getattr(self, f.name)}"
            for f in fields(self)
            if f.name == "model" or getattr(self, f.name) != getattr(default, f.name)
        )

    @classmethod
    def parse(cls, text: str) -> Cell:
        """Reads `model=gpt3,data=2,...`."""
        kinds = {f.name: type(getattr(cls(), f.name)) for f in fields(cls)}
        values: dict[str, Any] = {}
        for part in filter(None, text.split(",")):
            name, equals, value = part.partition("=")
            if name not in kinds or not equals:
                raise ValueError(f"{part!r} is not one of {', '.join(kinds)} with a value")
            values[name] = value in ("True", "true", "1") if kinds[name] is bool else kinds[name](value)
        return cls(**values)

    def section(self) -> dict[str, Any]:
        """The job's trainer section."""
        optimizer = {"name": "SGD", "learningRate": 0.5, "learningRateSchedule": {"name": "Constant"}}
        return {
            "seed": self.seed,
            "steps": 3,
            "precision": self.precision,
            "model": {
                "name": self.model,
                "layers": self.layers,
                "hiddenSize": self.heads * self.width,
                "heads": self.heads,
                "vocabularySize": self.vocabulary,
                "maxPositions": self.length,
                "dropout": self.dropout,
                "attentionDropout": self.dropout,
                "tieEmbeddings": self.tie,
            },
            "batch": {"global": self.samples, "micro": self.micro, "sequenceLength": self.length},
            "optimizer": {**optimizer, **({"maxGradNorm": 0.05} if self.clip else {})},
            "memory": {"recompute": "Full" if self.recompute else "None"},
            "parallelism": {
                "data": self.data, "shard": self.shard, "shardStage": self.stage, "tensor": self.tensor,
                "pipeline": self.pipeline, "context": self.context, "expert": self.expert,
            },
        }  # fmt: skip


def all_cells() -> list[Cell]:
    """Every model on every mesh, each with three combinations of the other options, in rotation."""
    combinations = list(itertools.product((1, 2, 3), (False, True), (False, True), (0.0, 0.2), (True, False), ODDITIES))
    order = random.Random(7)
    order.shuffle(combinations)
    rotation = itertools.cycle(combinations)
    return [
        Cell(model, data, shard, stage, accumulation, recompute, clip, dropout, tie, oddity)
        for model in ("gpt3", "bert")
        for data, shard, stage in MESHES
        for accumulation, recompute, clip, dropout, tie, oddity in itertools.islice(rotation, 3)
    ]


def covering(cells: Sequence[Cell]) -> list[Cell]:
    """Few of the cells in which every pair of option values occurs that occurs in any of them; chosen greedily."""
    missing = set().union(*(_pairs(cell) for cell in cells))
    chosen: list[Cell] = []
    while missing:
        best = max(cells, key=lambda cell: len(_pairs(cell) & missing))
        chosen.append(best)
        missing -= _pairs(best)
    return chosen


def drawn(seed: int, count: int) -> list[Cell]:
    """Random legal cells: odd sizes, dims that do not divide."""
    chance = random.Random(seed)
    return [_draw(chance) for _ in range(count)]


def _draw(chance: random.Random) -> Cell:
    data, shard, stage = chance.choice(MESHES)
    if (data, shard) in ((1, 2), (1, 4)) and chance.random() < 0.3:
        shard = 3
    return Cell(
        chance.choice(("gpt3", "bert")), data, shard, stage, chance.randint(1, 4), chance.random() < 0.5,
        chance.random() < 0.5, chance.choice((0.0, 0.1, 0.5)), chance.random() < 0.5, chance.choice(ODDITIES),
        chance.randint(1, 3), chance.randint(2, 11), chance.randint(5, 61), chance.randint(1, 3), chance.randint(2, 13),
        chance.randint(1, 3), chance.randint(0, 2**40),
    )  # fmt: skip


def _pairs(cell: Cell) -> set[tuple[Any, Any]]:
    values = [
        ("model", cell.model), ("stage", cell.stage), ("data", cell.data > 1), ("accumulation", cell.accumulation),
        ("recompute", cell.recompute), ("clip", cell.clip), ("dropout", cell.dropout), ("tie", cell.tie),
        ("oddity", cell.oddity),
    ]  # fmt: skip
    return set(itertools.combinations(values, 2))
