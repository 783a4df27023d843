"""What ranks of the pool do in the optimizer's tests."""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright_trainer.optim.norms import canonical_norm, global_norm
from meshwright_trainer.parallel.boxes import box_of


def gradients() -> list[Tensor]:
    """Gradients of a few parameters whose rows do not divide."""
    chance = torch.Generator().manual_seed(5)
    return [torch.randn(shape, dtype=torch.float64, generator=chance) for shape in ((7, 5), (3,), (1, 2), (10, 2, 2))]


def norms_of_parts() -> tuple[float, float]:
    """Norms of gradients of which each rank has its rows."""
    ranks, rank = dist.get_world_size(), dist.get_rank()
    boxes = [box_of(tuple(g.shape), ranks, rank) for g in gradients()]
    parts = [g[box.start : box.stop] for g, box in zip(gradients(), boxes, strict=True)]
    return global_norm(parts, dist.group.WORLD), canonical_norm(parts, boxes, dist.group.WORLD)
