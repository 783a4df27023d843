"""Stages 2 and 3: parameters, gradients and optimizer state sharded over the axis `shard` (torch's FSDP2).

Stage 2 keeps gathered parameters from the forward to the backward pass, stage 3 gathers them anew. With an axis `data`
the shards' gradients are summed over it too (hybrid sharding).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultReduceScatter
from torch.distributed.tensor import DTensor

from meshwright_trainer.collectives import canonical
from meshwright_trainer.collectives.canonical import BinaryCounter
from meshwright_trainer.mesh import Mesh
from meshwright_trainer.parallel.boxes import box_of
from meshwright_trainer.parallel.inference import evaluating
from meshwright_trainer.parallel.layout import Slice


class FullySharded:
    """Parameters are DTensors, sharded by their first dim."""

    split = True

    def __init__(self, module: nn.Module, mesh: Mesh, *, in_order: bool = False) -> None:
        """Takes a module that `shard_units` was applied to and whose weights are set."""
        self._module, self._mesh = module, mesh
        self._counter = BinaryCounter() if in_order else None
        self._hybrid = mesh.dims.data > 1 and not in_order
        named = list(module.named_parameters())
        self._trained = [p for _, p in named if p.requires_grad]
        self.slices = tuple(
            Slice(
                name,
                box_of(tuple(p.shape), mesh.dims.shard, mesh.shard_rank),
                _local(p).detach(),
                i % mesh.dims.data == mesh.data_rank,
                p.requires_grad,
            )
            for i, (name, p) in enumerate(named)
        )

    @property
    def forward(self) -> Any:
        """FSDP's hooks are the module's own."""
        return self._module

    @contextmanager
    def micro_batch(self, *, last: bool) -> Iterator[None]:
        """Gradients are scattered after each micro-batch, as stage 2 says; over `data` goes only their sum."""
        if self._hybrid and isinstance(self._module, FSDPModule):
            self._module.set_requires_all_reduce(last)
        yield
        if self._counter is not None:
            self._counter.add([_gradient(p) for p in self._trained])
            self.clear()

    def gradients(self) -> list[Tensor]:
        """This rank's rows of the gradients, equal on all ranks of `data`."""
        return self._counter.take() if self._counter is not None else [_gradient(p) for p in self._trained]

    def clear(self) -> None:
        """Frees the gradients."""
        for p in self._trained:
            p.grad = None

    def publish(self) -> None:
        """Nothing: the next forward pass gathers the new values."""

    @contextmanager
    def evaluation(self) -> Iterator[Any]:
        """Afterwards the parameters are shards again: without a backward pass nothing else would free them."""
        with evaluating(self._module) as module:
            yield module
        for unit in self._module.modules():
            if isinstance(unit, FSDPModule):
                unit.reshard()


def shard_units(
    module: nn.Module, units: Sequence[nn.Module], mesh: Mesh, *, bf16: bool = False, in_order: bool = False
) -> None:
    """Shards each unit, and the rest as one; weights may still be on the meta device.

    Args:
        module: the model.
        units: what is gathered as one, in the order of the forward pass.
        mesh: the mesh.
        bf16: whether to compute in bfloat16; gradients are summed and weights kept in their own format.
        in_order: whether sums are those of `collectives.canonical`.
    """
    hybrid = mesh.dims.data > 1 and not in_order
    torch_mesh = mesh.torch_mesh if hybrid else mesh.torch_mesh["shard"]
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    for unit in (*units, module):
        fully_shard(unit, mesh=torch_mesh, reshard_after_forward=mesh.dims.shard_stage == 3, mp_policy=policy)
        if not isinstance(unit, FSDPModule):
            raise TypeError("fully_shard did not change the module's class")
        # Sums, not means: the loss carries the only scaling there is.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
        if in_order:
            unit.set_custom_reduce_scatter(_TreeReduceScatter())
            unit.set_all_reduce_hook(_tree_all_reduce(mesh.data))


class _TreeReduceScatter(DefaultReduceScatter):
    """FSDP's reduce-scatter in canonical order."""

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: object,
        async_op: bool = False,
    ) -> None:
        canonical.reduce_scatter(output_tensor, input_tensor, group)


def _tree_all_reduce(group: dist.ProcessGroup) -> Any:
    def hook(reduced: Tensor) -> None:
        canonical.all_reduce(reduced, group)

    return hook


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _gradient(parameter: nn.Parameter) -> Tensor:
    return _local(parameter.grad) if parameter.grad is not None else torch.zeros_like(_local(parameter))
