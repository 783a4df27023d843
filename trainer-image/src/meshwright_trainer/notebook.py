"""Training from a notebook or a program of one's own, in this process.

from meshwright_trainer.notebook import train

run = train({"model": {"name": "gpt3", "preset": "tiny"}, "data": {"source": "builtin:stdlib"}, "steps": 50})
run.figures("loss")
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright_trainer.loop import Ending
from meshwright_trainer.loop import train as train_loop
from meshwright_trainer.plan import from_section
from meshwright_trainer.session import session
from meshwright_trainer.sinks.base import Record
from meshwright_trainer.stopping import StopRequest


@dataclass(frozen=True)
class Run:
    """What a run came to."""

    ending: Ending
    """Finished, or terminated by an interrupt; the same call goes on from its last checkpoint."""
    records: tuple[Record, ...]
    """Everything that was recorded, in order."""

    def figures(self, name: str, event: str = "step") -> dict[int, float]:
        """One figure by step: `loss`, `gradient_norm`, `tokens_per_second`."""
        return {r.step: r.figures()[name] for r in self.records if r.event == event and name in r.figures()}


class Memory:
    """Keeps the records."""

    def __init__(self) -> None:
        self.records: list[Record] = []

    def write(self, record: Record) -> None:
        """Keeps one."""
        self.records.append(record)

    def close(self) -> None:
        """Nothing is open."""


def train(section: Mapping[str, Any]) -> Run:
    """Trains what a trainer section says; an interrupt (the notebook's stop button) ends it with a checkpoint.

    Raises:
        InvalidTrainer, TrainerError, DataError, CheckpointError: naming what cannot be, and what to do.
    """
    memory = Memory()
    with StopRequest() as stop, session(from_section(section), stop, memory) as ready:
        ending = train_loop(ready)
    return Run(ending, tuple(memory.records))
