"""Full sharding by hand: every block and the rest are units; gradients are scattered after each micro-batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext

from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from benchmarks.baselines.step import step_of
from meshwright_trainer.batch import Batch


def fsdp2(module: nn.Module, ranks: int) -> Callable[[Sequence[Batch]], float]:
    """A step over all ranks."""
    mesh = init_device_mesh("cpu", (ranks,))
    for block in module.get_submodule("blocks").children():
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return step_of(module, lambda last: nullcontext())
