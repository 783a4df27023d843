"""Data parallelism by hand: gradients are views of DDP's buckets, and only the last micro-batch is synchronised."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.baselines.step import step_of
from meshwright_trainer.batch import Batch


def ddp(module: nn.Module) -> Callable[[Sequence[Batch]], float]:
    """A step over all ranks."""
    wrapper = DistributedDataParallel(module, gradient_as_bucket_view=True)
    return step_of(wrapper, lambda last: nullcontext() if last else wrapper.no_sync())
