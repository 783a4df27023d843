"""Stage 1: replicated parameters whose update is shared out.

This is Xu et al. 2020, "Automatic cross-replica sharding of weight update in data-parallel training", and ZeRO's stage
1. Gradients are reduce-scattered over the axis `shard`, tensor by tensor in boxes of rows; each rank updates its boxes;
an all-gather brings the new values to all. In bfloat16 the boxes are 32-bit masters, and gradients are added up in 32
bits. An axis `shard` of size 1 makes it stage 0 with masters.

Shapes: n ranks of `shard`, S elements of one rank's boxes with padding.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from meshwright_trainer.collectives import canonical
from meshwright_trainer.collectives.canonical import BinaryCounter
from meshwright_trainer.mesh import Mesh
from meshwright_trainer.parallel.boxes import box_of, chunk_rows
from meshwright_trainer.parallel.inference import evaluating
from meshwright_trainer.parallel.layout import Slice

BUCKET_ELEMENTS = 8 * 1024 * 1024
"""A collective takes parameters up to about this many elements: few calls, and buffers that stay small."""


class UpdateSharded:
    """Whole parameters on every rank; gradients and optimizer state in boxes of rows."""

    def __init__(self, module: nn.Module, mesh: Mesh, *, bf16: bool = False, in_order: bool = False) -> None:
        """Spreads a module. Values are those of the slices, once `publish` was called.

        Args:
            module: the model with weights in the format of the masters.
            mesh: the mesh.
            bf16: whether to compute in bfloat16.
            in_order: whether sums are those of `collectives.canonical`.
        """
        self._module, self._mesh, self._in_order = module, mesh, in_order
        self._counter = BinaryCounter() if in_order else None
        self.split = mesh.dims.shard > 1
        named = list(module.named_parameters())
        boxes = [box_of(tuple(p.shape), mesh.dims.shard, mesh.shard_rank) for _, p in named]
        rows = [_rows(p.detach(), box.start, box.stop) for (_, p), box in zip(named, boxes, strict=True)]
        # Masters are copies; without them the slices are views of the parameters.
        rows = [part.clone() for part in rows] if bf16 else rows
        self.slices = tuple(
            Slice(name, box, part, i % mesh.dims.data == mesh.data_rank, p.requires_grad)
            for i, ((name, p), box, part) in enumerate(zip(named, boxes, rows, strict=True))
        )
        if bf16:
            module.to(torch.bfloat16)
        self._parameters = [p for _, p in named]
        self._trained = [p for p in self._parameters if p.requires_grad]
        self._sums: dict[nn.Parameter, Tensor] = {}
        if bf16:
            for p in self._trained:
                p.register_post_accumulate_grad_hook(self._add_in_32_bits)

    @property
    def forward(self) -> Any:
        """The bare module: nothing is sent before the last backward pass is done."""
        return self._module

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """In canonical order each micro-batch is reduced by itself."""
        yield
        if self._counter is not None:
            self._counter.add(self._reduced())
            self.clear()

    def gradients(self) -> list[Tensor]:
        """This rank's rows of the gradients, equal on all ranks of `data`."""
        return self._counter.take() if self._counter is not None else self._reduced()

    def clear(self) -> None:
        """Frees the whole gradients."""
        self._sums.clear()
        for p in self._trained:
            p.grad = None

    def publish(self) -> None:
        """Gathers all boxes into the parameters."""
        for bucket in _buckets(list(zip(self._parameters, self.slices, strict=True))):
            _gather([p.detach() for p, _ in bucket], [s.tensor for _, s in bucket], self._mesh.shard)

    def evaluation(self) -> Any:
        """The bare module, whose parameters are whole."""
        return evaluating(self._module)

    def _add_in_32_bits(self, parameter: nn.Parameter) -> None:
        gradient, parameter.grad = parameter.grad, None
        if gradient is None:
            return
        if parameter in self._sums:
            self._sums[parameter] += gradient
        else:
            self._sums[parameter] = gradient.float()

    def _gradient(self, parameter: nn.Parameter, like: Tensor) -> Tensor:
        gradient = self._sums.get(parameter, parameter.grad)
        return torch.zeros_like(parameter, dtype=like.dtype) if gradient is None else gradient

    def _reduced(self) -> list[Tensor]:
        trained = [(p, s) for p, s in zip(self._parameters, self.slices, strict=True) if s.trainable]
        return [
            part
            for bucket in _buckets(trained)
            for part in self._scattered([self._gradient(p, s.tensor) for p, s in bucket], [s for _, s in bucket])
        ]

    def _scattered(self, gradients: list[Tensor], slices: list[Slice]) -> list[Tensor]:
        """Sums over `shard`, then over `data`; returns the rows of this rank's boxes."""
        shard, data = self._mesh.shard, self._mesh.data
        input_nS = _packed(gradients, shard.size())
        output_S = input_nS.new_empty(input_nS.shape[1])
        if shard.size() == 1:
            output_S = input_nS[0]
        elif self._in_order:
            canonical.reduce_scatter(output_S, input_nS.view(-1), shard)
        else:
            dist.reduce_scatter_tensor(output_S, input_nS.view(-1), group=shard)
        if data.size() > 1:
            canonical.all_reduce(output_S, data) if self._in_order else dist.all_reduce(output_S, group=data)
        parts = output_S.split([_padded(g, shard.size()) for g in gradients])
        return [part[: s.tensor.numel()].view(s.tensor.shape) for part, s in zip(parts, slices, strict=True)]


def _rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    return tensor.narrow(0, start, stop - start) if tensor.dim() else tensor


def _padded(tensor: Tensor, ranks: int) -> int:
    """Elements of the largest box."""
    rows = tensor.shape[0] if tensor.dim() else 1
    return chunk_rows(rows, ranks) * (tensor.numel() // rows if rows else 0)


def _packed(tensors: Sequence[Tensor], ranks: int) -> Tensor:
    """Whole tensors as (n, S): row r has rank r's boxes one after the other, padded with zeros."""
    sizes = [_padded(t, ranks) for t in tensors]
    packed_nS = tensors[0].new_empty(ranks, sum(sizes))
    for tensor, column_nC in zip(tensors, packed_nS.split(sizes, dim=1), strict=True):
        missing = column_nC.numel() - tensor.numel()
        flat = nn.functional.pad(tensor.reshape(-1), (0, missing)) if missing else tensor.reshape(-1)
        column_nC.copy_(flat.view(column_nC.shape))
    return packed_nS


def _gather(whole: Sequence[Tensor], parts: Sequence[Tensor], group: dist.ProcessGroup) -> None:
    """Fills whole tensors from all ranks' boxes."""
    ranks = group.size()
    sizes = [_padded(t, ranks) for t in whole]
    mine_S = whole[0].new_zeros(sum(sizes))
    for place, part in zip(mine_S.split(sizes), parts, strict=True):
        place[: part.numel()] = part.reshape(-1)
    all_nS = mine_S.new_empty(ranks, mine_S.numel())
    if ranks > 1:
        dist.all_gather_into_tensor(all_nS.view(-1), mine_S, group=group)
    else:
        all_nS[0] = mine_S
    for tensor, column_nC in zip(whole, all_nS.split(sizes, dim=1), strict=True):
        tensor.copy_(column_nC.reshape(-1)[: tensor.numel()].view(tensor.shape))


def _buckets(pairs: list[tuple[nn.Parameter, Slice]]) -> Iterator[list[tuple[nn.Parameter, Slice]]]:
    """The pairs in order, in runs of about `BUCKET_ELEMENTS` and of one format."""
    bucket: list[tuple[nn.Parameter, Slice]] = []
    size = 0
    for pair in pairs:
        parameter = pair[0]
        if bucket and (size + parameter.numel() > BUCKET_ELEMENTS or bucket[0][0].dtype != parameter.dtype):
            yield bucket
            bucket, size = [], 0
        bucket.append(pair)
        size += parameter.numel()
    if bucket:
        yield bucket
