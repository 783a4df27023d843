"""What this version does not run: one table, so that a refusal is never a surprise deep in a stack trace."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from meshwright_api.trainer import ParallelismMode, Precision, Recompute, UpdateMode
from meshwright_api.trainer_config import TrainerConfig
from meshwright_trainer.errors import Unsupported


@dataclass(frozen=True)
class Rule:
    """One kind of job that is refused."""

    id: str
    """Its name: `TENSOR-LATER`."""
    field: str
    """The field that asks for it."""
    applies: Callable[[TrainerConfig], bool]
    advice: str
    """Why, and what to do."""


class Refused(Unsupported):
    """The job asks for something of the table."""

    def __init__(self, rule_id: str, field: str, advice: str) -> None:
        super().__init__(f"{field}: {advice} [{rule_id}]")
        self.rule_id = rule_id


ELEMENTWISE: Final = frozenset(
    f"torch.optim:{name}"
    for name in ("Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")
)
"""Optimizers whose update of an element depends on that element alone, so that they may work on parts of a tensor."""

RULES: Final = (
    Rule("AUTO-LATER", "spec.trainer.parallelism.mode", lambda c: c.parallelism.mode is not ParallelismMode.MANUAL,
         "a mesh is not chosen for you in this version; set mode Manual and the axes data and shard"),
    Rule("PIPELINE-LATER", "spec.trainer.parallelism.pipeline", lambda c: c.parallelism.pipeline > 1,
         "pipelines are not part of this version; use the axes data and shard"),
    Rule("CONTEXT-LATER", "spec.trainer.parallelism.context", lambda c: c.parallelism.context > 1,
         "sequences are not split in this version; use the axes data and shard"),
    Rule("TENSOR-LATER", "spec.trainer.parallelism.tensor", lambda c: c.parallelism.tensor > 1,
         "layers are not split in this version; use the axis shard with shardStage 3"),
    Rule("EXPERT-LATER", "spec.trainer.parallelism.expert", lambda c: c.parallelism.expert > 1,
         "experts are not spread in this version; set 1"),
    Rule("UPDATE-LATER", "spec.trainer.update.mode", lambda c: c.update.mode is not UpdateMode.SYNCHRONOUS,
         "only Synchronous is part of this version"),
    Rule("FP16-LATER", "spec.trainer.precision", lambda c: c.precision is Precision.FP16,
         "loss scaling is not part of this version; use BF16"),
    Rule("FP8-LATER", "spec.trainer.precision", lambda c: c.precision is Precision.FP8,
         "FP8 is not part of this version; use BF16"),
    Rule("SELECTIVE-LATER", "spec.trainer.memory.recompute", lambda c: c.memory.recompute is Recompute.SELECTIVE,
         "use Full or None"),
    Rule("OPTIMIZER-LATER", "spec.trainer.optimizer.name",
         lambda c: c.optimizer.factory is None and c.optimizer.name not in ("AdamW", "SGD"),
         "use AdamW or SGD, or name your own by optimizer.factory"),
    Rule("FACTORY-SHARD", "spec.trainer.optimizer.factory",
         lambda c: c.parallelism.shard_stage > 0 and c.optimizer.factory is not None
         and c.optimizer.factory not in ELEMENTWISE,
         "with shardStage 1 to 3 an optimizer sees parts of tensors, and whether yours may is not known; use "
         f"shardStage 0, or one of {', '.join(sorted(ELEMENTWISE))}"),
)  # fmt: skip
"""In the order in which they are looked at."""


def refusals(config: TrainerConfig) -> Iterator[Rule]:
    """The rules that a job runs into."""
    return (rule for rule in RULES if rule.applies(config))


def check_supported(config: TrainerConfig) -> None:
    """Refuses what this version does not run.

    Raises:
        Refused: with the first rule that applies.
    """
    for rule in refusals(config):
        raise Refused(rule.id, rule.field, rule.advice)
