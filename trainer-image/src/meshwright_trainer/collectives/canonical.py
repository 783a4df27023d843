"""Sums whose bits do not depend on how many ranks they are spread over.

Addition of floating-point numbers is not associative, so a sum's bits depend on its order. Here the order is that of
the global micro-batches, in a fixed binary tree: micro-batch j * n + r belongs to rank r of n, so the ranks of a group
are the lower levels of the tree and accumulation its upper ones. With numbers of ranks that are powers of two every
split of the leaves is at a node of the tree. All ranks send as many bytes as in a ring.

Shapes: n ranks, S elements.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor


def tree_sum(terms: Sequence[Tensor]) -> Tensor:
    """The terms' sum: neighbours first, then neighbouring pairs, and so on."""
    level = list(terms)
    while len(level) > 1:
        pairs = [a + b for a, b in zip(level[::2], level[1::2], strict=False)]
        level = pairs if len(level) % 2 == 0 else [*pairs, level[-1]]
    return level[0]


def halving_sum(x: Tensor) -> Tensor:
    """Sum over the last dim by adding its halves, over and over.

    Each addition is elementwise, so neither the number of threads nor that of rows changes the order, as it may in
    `torch.sum`.
    """
    while x.shape[-1] > 1:
        half = x.shape[-1] // 2
        front = x[..., :half] + x[..., half : 2 * half]
        # An odd last element waits for the next round.
        x = front if x.shape[-1] % 2 == 0 else torch.cat([front, x[..., -1:]], dim=-1)
    return x.squeeze(-1) if x.shape[-1] else x.new_zeros(x.shape[:-1])


def reduce_scatter(output_S: Tensor, input_nS: Tensor, group: dist.ProcessGroup) -> None:
    """Rank r gets the tree sum of all ranks' r-th part of the input."""
    received = torch.empty_like(input_nS)
    dist.all_to_all_single(received, input_nS, group=group)
    output_S.copy_(tree_sum(received.chunk(group.size())))


def all_reduce(buffer: Tensor, group: dist.ProcessGroup) -> None:
    """Every rank gets the tree sum of all ranks' buffers, in place; the buffer is flat."""
    ranks = group.size()
    if ranks == 1:
        return
    part = -(-buffer.numel() // ranks)
    padded = torch.nn.functional.pad(buffer, (0, part * ranks - buffer.numel()))
    mine = buffer.new_empty(part)
    reduce_scatter(mine, padded, group)
    dist.all_gather_into_tensor(padded, mine, group=group)
    buffer.copy_(padded[: buffer.numel()])


class BinaryCounter:
    """Adds up lists of tensors in the order of the tree, with memory for log2 of their number.

    Sums of 1, 2, 4, ... lists wait like the digits of a counter; a new list carries over.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[int, list[Tensor]]] = []

    def add(self, tensors: list[Tensor]) -> None:
        """The next micro-batch's gradients. They are kept, not copied."""
        level = 0
        while self._waiting and self._waiting[-1][0] == level:
            _, earlier = self._waiting.pop()
            tensors = [a + b for a, b in zip(earlier, tensors, strict=True)]
            level += 1
        self._waiting.append((level, tensors))

    def take(self) -> list[Tensor]:
        """The sum of all lists, and starts anew. What is left over is added from the smallest sum upwards."""
        _, total = self._waiting.pop()
        while self._waiting:
            _, earlier = self._waiting.pop()
            total = [a + b for a, b in zip(earlier, total, strict=True)]
        return total
