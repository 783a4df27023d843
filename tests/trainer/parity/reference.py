"""The oracle: one process, float64, all samples at once, torch's own clipping and SGD.

It knows models, objectives and randomness, and nothing that spreads them: `test_reference.py` looks.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from meshwright_api.trainer_config import TrainerConfig, trainer_config
from meshwright_trainer.models.base import Model
from meshwright_trainer.models.initialise import initialised
from meshwright_trainer.models.registry import build_model
from meshwright_trainer.objectives.base import Objective
from meshwright_trainer.objectives.registry import build_objective
from meshwright_trainer.random import Key
from tests.trainer.parity.cells import Cell
from tests.trainer.parity.samples import whole_step


@dataclass(frozen=True)
class Trace:
    """What three steps came to."""

    losses: list[float]
    weights: list[float]
    norms: list[float]
    gradients: dict[str, Tensor]
    """Of the first step, before clipping, by name."""
    parameters: dict[str, Tensor]
    """After the last step."""


def parts(cell: Cell, config: TrainerConfig) -> tuple[Model, Objective]:
    """The cell's model, on the meta device, and its objective."""
    model = build_model(config.model, vocabulary_size=cell.vocabulary, sequence_length=cell.length)
    objective = build_objective(
        config.objective, model.objective, vocabulary_size=cell.vocabulary, mask_token=cell.vocabulary - 1
    )
    return model, objective


def train(cell: Cell, steps: int = 3) -> Trace:
    """Trains in one process."""
    alone = Cell(**{**vars(cell), "data": 1, "shard": 1, "stage": 0})
    config = trainer_config({**alone.section(), "batch": {"sequenceLength": cell.length}}, 1)
    model, objective = parts(cell, config)
    module = initialised(model, config.seed, dtype=torch.float64)
    optimizer = torch.optim.SGD(module.parameters(), lr=config.optimizer.learning_rate)
    trace = Trace([], [], [], {}, {})
    for step in range(1, steps + 1):
        batch = whole_step(cell, step)
        key = Key(config.seed, step, batch.sample_id, torch.arange(cell.length))
        batch = objective.prepare(batch, key)
        weight = objective.weight(batch).item()
        loss = objective(module(batch, key), batch).sum / weight if weight else torch.zeros((), requires_grad=True)
        loss.backward()
        if step == 1:
            # A step without targets has no gradient.
            found = {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in module.named_parameters()}
            trace.gradients.update(_copied(found))
        limit = config.optimizer.max_grad_norm
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), float("inf") if limit is None else limit)
        if weight:
            optimizer.step()
        optimizer.zero_grad()
        trace.losses.append(loss.item())
        trace.weights.append(weight)
        trace.norms.append(norm.item())
    trace.parameters.update(_copied(dict(module.named_parameters())))
    return trace


def _copied(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().clone() for name, tensor in tensors.items()}
