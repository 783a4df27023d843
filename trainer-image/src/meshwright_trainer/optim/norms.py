"""The norm of the whole gradient, every logical parameter counted once, and clipping by it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright_trainer.collectives.canonical import halving_sum
from meshwright_trainer.parallel.boxes import Box, chunk_rows


def global_norm(gradients: Sequence[Tensor], group: dist.ProcessGroup | None) -> float:
    """2-norm of all gradients together, in 64 bits.

    Args:
        gradients: this rank's parts.
        group: ranks that hold the other parts; None if the gradients are whole. Replicas are not in it, so nothing is
            counted twice.
    """
    squares = [torch.linalg.vector_norm(g, dtype=torch.float64).square() for g in gradients if g.numel()]
    total = torch.stack(squares).sum() if squares else torch.zeros((), dtype=torch.float64)
    if group is not None and group.size() > 1:
        total = total.to(gradients[0].device)
        dist.all_reduce(total, group=group)
    return math.sqrt(total.item()) if total.item() >= 0 else math.nan


def canonical_norm(gradients: Sequence[Tensor], boxes: Sequence[Box], group: dist.ProcessGroup | None) -> float:
    """`global_norm` with bits that do not depend on the number of ranks.

    One sum of squares for each row of dim 0; rows never lie across ranks. They are gathered and added in the order
    of the logical parameters.
    """
    rows = [_row_sums(gradient, box) for gradient, box in zip(gradients, boxes, strict=True)]
    if group is not None and group.size() > 1:
        rows = _gathered(rows, boxes, group)
    total = halving_sum(torch.cat(rows)).item()
    return math.sqrt(total) if total >= 0 else math.nan


def clip_coefficient(norm: float, limit: float | None) -> float:
    """What the gradients are multiplied by: that of `torch.nn.utils.clip_grad_norm_`."""
    return 1.0 if limit is None else min(1.0, limit / (norm + 1e-6))


def _row_sums(gradient: Tensor, box: Box) -> Tensor:
    rows = box.stop - box.start
    if gradient.numel() == 0:
        return gradient.new_zeros(rows, dtype=torch.float64)
    return halving_sum(gradient.reshape(rows, -1).double().square())


def _gathered(rows: list[Tensor], boxes: Sequence[Box], group: dist.ProcessGroup) -> list[Tensor]:
    """All ranks' row sums, parameter by parameter in global order."""
    ranks = group.size()
    counts = [box.shape[0] for box in boxes]
    chunks = [chunk_rows(count, ranks) for count in counts]
    mine = rows[0].new_zeros(sum(chunks))
    for place, part in zip(mine.split(chunks), rows, strict=True):
        place[: part.numel()] = part
    everyone = mine.new_empty(ranks, mine.numel())
    dist.all_gather_into_tensor(everyone.view(-1), mine, group=group)
    columns = everyone.split(chunks, dim=1)
    return [column.reshape(-1)[:count] for column, count in zip(columns, counts, strict=True)]
