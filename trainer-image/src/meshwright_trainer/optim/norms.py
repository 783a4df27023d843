"""The norm of the whole gradient, every logical parameter counted once, and clipping by it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor

from meshwright_trainer.collectives.canonical import halving_sum
from meshwright_trainer.parallel.boxes import Box, chunk_rows

CHUNK: Final = 1 << 16
"""Elements that are added up in their own format."""


def global_norm(gradients: Sequence[Tensor], group: dist.ProcessGroup | None) -> float:
    """2-norm of all gradients together, added up in 64 bits.

    Args:
        gradients: this rank's parts.
        group: ranks that hold the other parts; None if the gradients are whole. Replicas are not in it, so nothing is
            counted twice.
    """
    norms = torch._foreach_norm([chunk for g in gradients if g.numel() for chunk in _chunks(g)], 2)
    total = torch.stack(norms).double().square().sum() if norms else gradients[0].new_zeros((), dtype=torch.float64)
    if group is not None and group.size() > 1:
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


def _chunks(gradient: Tensor) -> Sequence[Tensor]:
    """Parts whose norm is exact enough in the gradient's own format.

    A CPU adds one after the other, and 32 bits are off by 0.4 % after 50 million elements; in 64 bits it would take
    thirty times as long.
    """
    if gradient.device.type != "cpu":
        return (gradient,)
    chunks: Sequence[Tensor] = gradient.reshape(-1).split(CHUNK)
    return chunks


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
