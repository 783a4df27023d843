"""What the built-in trainer of this version does not do yet. Whoever builds it deletes the line, here and nowhere else.

The names of what it has (models, objectives, ...) stand here because the operator does not import the trainer.
"""

from __future__ import annotations

from typing import Final

from meshwright_api.checks.later import Later
from meshwright_api.keys import LIST

MODELS: Final = ("gpt3", "bert")
"""Built-in model families."""
OBJECTIVES: Final = ("NextToken", "MaskedToken")
"""Built-in objectives."""
FORMATS: Final = ("Text", "JSONLines")
"""Forms of data that are read without a factory."""
TOKENIZERS: Final = ("Bytes", "BPE")
"""Built-in tokenizers."""
OPTIMIZERS: Final = ("AdamW", "SGD")
"""Built-in optimizers."""
SCHEDULES: Final = ("Constant", "Cosine", "Linear", "InverseSquareRoot", "Step")
"""Schedules of the learning rate."""


def _named(*path: str, works: tuple[str, ...], what: str, factory: bool = True) -> Later:
    own = f", or give your own as {path[-2]}.factory" if factory else ""
    return Later(("trainer", *path), f"this version has no such {what}; use {' or '.join(works)}{own}", works)


def _axis(name: str) -> Later:
    say = "this axis is not part of this version; leave it out or use 1, and use data and shard"
    return Later(("trainer", "parallelism", name), say, (1,))


def _absent(*path: str, what: str, instead: str = "leave it out") -> Later:
    return Later(("trainer", *path), f"{what} not part of this version; {instead}")


TRAINER_LATER: Final[tuple[Later, ...]] = (
    _named("model", "name", works=MODELS, what="model"),
    *(
        _absent("model", field, what="mixtures of experts are")
        for field in ("experts", "expertsPerToken", "capacityFactor", "groupTokens")
    ),
    _absent("model", "keyValueHeads", what="grouped key and value heads are"),
    _named("objective", "name", works=OBJECTIVES, what="objective"),
    _named("data", "format", works=FORMATS, what="format"),
    _named("data", "sources", LIST, "format", works=FORMATS, what="format", factory=False),
    _named("data", "tokenizer", "name", works=TOKENIZERS, what="tokenizer", factory=False),
    _named("optimizer", "name", works=OPTIMIZERS, what="optimizer"),
    _named("optimizer", "learningRateSchedule", "name", works=SCHEDULES, what="schedule", factory=False),
    Later(
        ("trainer", "precision"),
        "this number format is not part of this version; use BF16, FP32 or FP64",
        ("FP64", "FP32", "BF16"),
    ),
    Later(
        ("trainer", "parallelism", "mode"),
        "the planner is not part of this version; leave it out or use Manual, and give the axes data and shard",
        ("Manual",),
    ),
    *map(_axis, ("pipeline", "context", "tensor", "expert", "virtualStages")),
    _absent("parallelism", "pipelineSchedule", what="pipelines are"),
    Later(
        ("trainer", "update", "mode"),
        "this way of updating is not part of this version; leave it out or use Synchronous",
        ("Synchronous",),
    ),
    *(
        _absent("update", field, what="parameter servers are")
        for field in ("consistency", "slack", "fetchEvery", "pushEvery")
    ),
    Later(
        ("trainer", "memory", "recompute"),
        "this choice is not part of this version; use None or Full",
        ("None", "Full"),
    ),
    _absent("memory", "activationCodec", what="codecs are"),
    _absent("memory", "offload", what="offloading is", instead="leave it out and use shard and recompute: Full"),
    _absent("memory", "tiers", what="memory tiers are"),
    _absent("logging", "wandb", what="Weights & Biases is", instead="leave it out and use tensorBoard"),
)
"""What this version's trainer refuses."""
