"""Stage 0: every rank holds the whole model; gradients are summed over the axis `data` (torch's DDP)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from meshwright_trainer.batch import Batch
from meshwright_trainer.collectives import canonical
from meshwright_trainer.collectives.canonical import BinaryCounter
from meshwright_trainer.mesh import Mesh
from meshwright_trainer.parallel.boxes import box_of
from meshwright_trainer.parallel.inference import evaluating
from meshwright_trainer.parallel.layout import Slice
from meshwright_trainer.random import Key


class DataParallel:
    """Replicated parameters, optimizer state and gradients."""

    split = False

    def __init__(self, module: nn.Module, mesh: Mesh, *, in_order: bool = False, may_skip: bool = False) -> None:
        """Spreads a module whose weights are equal on all ranks.

        Args:
            module: the model.
            mesh: its axis `shard` has size 1.
            in_order: whether sums are those of `collectives.canonical`.
            may_skip: whether a forward pass may leave parameters out, which DDP must then look for.
        """
        self._module = module
        self._counter = BinaryCounter() if in_order else None
        named = list(module.named_parameters())
        self._trained = [p for _, p in named if p.requires_grad]
        self.slices = tuple(
            # Whole tensors are shared out among the replicas, so that each writes a part of a checkpoint.
            Slice(name, box_of(tuple(p.shape)), p.detach(), i % mesh.dims.data == mesh.data_rank, p.requires_grad)
            for i, (name, p) in enumerate(named)
        )
        self._wrapper = _wrapped(module, mesh, in_order, may_skip) if mesh.dims.data > 1 else None

    @property
    def forward(self) -> Any:
        """DDP's forward pass prepares its reduction."""
        return self._wrapper or self._module

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """Sums over ranks after the last micro-batch; in canonical order after each."""
        wait = self._wrapper is not None and not last and self._counter is None
        with self._wrapper.no_sync() if wait and self._wrapper is not None else nullcontext():
            yield
        if self._counter is not None:
            # Gradients are views of DDP's buckets, which the next micro-batch overwrites.
            self._counter.add([_gradient(p).clone() for p in self._trained])
            self.clear()

    def gradients(self) -> list[Tensor]:
        """Whole gradients, equal on all ranks."""
        return self._counter.take() if self._counter is not None else [_gradient(p) for p in self._trained]

    def clear(self) -> None:
        """Frees the gradients, or their places in the buckets."""
        for p in self._trained:
            p.grad = None

    def publish(self) -> None:
        """Nothing: the slices are the parameters."""

    def evaluation(self) -> Any:
        """The bare module: without gradients there is nothing to reduce."""
        return evaluating(self._module)


def _gradient(parameter: nn.Parameter) -> Tensor:
    return parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)


class _WithUnused(nn.Module):
    """A model, and a parameter that is never used.

    Told to look for parameters that a forward pass left out, DDP warns on every rank that it looks in vain when there
    are none. With this one there always is one; it costs an element of each sum.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        first = next(p for p in module.parameters() if p.requires_grad)
        self.unused = nn.Parameter(first.new_zeros(1))

    def forward(self, batch: Batch, key: Key) -> Any:
        """The model's."""
        return self.module(batch, key)


def _wrapped(module: nn.Module, mesh: Mesh, in_order: bool, may_skip: bool) -> DistributedDataParallel:
    wrapper = DistributedDataParallel(
        _WithUnused(module) if may_skip else module,
        process_group=mesh.data,
        forward_sync_buffers=False,
        init_sync=False,
        gradient_as_bucket_view=True,
        find_unused_parameters=may_skip,
    )
    # DDP checks annotations and cannot read those that are strings, so it gets a function without any.
    reduce = _sum_in_order if in_order else _sum
    wrapper.register_comm_hook(mesh.data, lambda group, bucket: reduce(group, bucket))
    return wrapper


def _sum(group: dist.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    """DDP would divide by the number of ranks; the loss carries the only scaling there is."""
    work = dist.all_reduce(bucket.buffer(), group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def _sum_in_order(group: dist.ProcessGroup, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    canonical.all_reduce(bucket.buffer(), group)
    done: torch.futures.Future[Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done
