"""The step that both baselines share: accumulate, divide by all targets, clip, update."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from meshwright_trainer.batch import Batch
from meshwright_trainer.random import Key

Hold = Callable[[bool], AbstractContextManager[Any]]
"""A context for a micro-batch, told whether it is the last."""


def step_of(module: nn.Module, hold: Hold) -> Callable[[Sequence[Batch]], float]:
    """A training step with AdamW and clipping."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-4, fused=True)

    def step(batches: Sequence[Batch]) -> float:
        weight = torch.stack([b.weights.sum() for b in batches]).sum()
        dist.all_reduce(weight)
        # Both DDP and FSDP take the mean over ranks.
        scale = dist.get_world_size() / weight
        total = torch.zeros(())
        for i, batch in enumerate(batches):
            with hold(i == len(batches) - 1):
                logits = module(batch, Key(0, 0, batch.sample_id, torch.arange(batch.tokens.shape[1])))
                loss = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="none")
                loss = (loss * batch.weights.flatten()).sum() * scale
                loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        dist.all_reduce(total)
        return total.item() / dist.get_world_size()

    return step
