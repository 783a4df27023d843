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
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.tensor import DTensor

from meshwright_trainer.collectives import canonical
from meshwright_trainer.collectives.canonical import BinaryCounter
from meshwright_trainer.mesh import Mesh
from meshwright_trainer.parallel.boxes import box_of
from meshwright_trainer.parallel.inference import evaluating
from meshwright_trainer.parallel.layout import Slice
from meshwright_trainer.parallel.lockstep import Lockstep


class FullySharded:
    """Parameters are DTensors, sharded by their first dim."""

    split = True

    def __init__(
        self, module: nn.Module, mesh: Mesh, *, in_order: bool = False, lockstep: Lockstep | None = None
    ) -> None:
        """Takes a module that `shard_units` was applied to, and what was given to that."""
        self._module, self._lockstep = module, lockstep
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
        """This rank's rows of the gradients, equal on all ranks of `data`.

        Raises:
            InvalidLaunch: ranks did not run the same parts of the model.
        """
        self._check()
        return self._counter.take() if self._counter is not None else [_gradient(p) for p in self._trained]

    def clear(self) -> None:
        """Frees the gradients."""
        for p in self._trained:
            p.grad = None

    def publish(self) -> None:
        """Nothing: the next forward pass gathers the new values."""

    @contextmanager
    def evaluation(self) -> Iterator[Any]:
        """Afterwards the parameters are shards again: without a backward pass nothing else would free them.

        Raises:
            InvalidLaunch: ranks did not run the same parts of the model.
        """
        with evaluating(self._module) as module:
            yield module
        for unit in self._module.modules():
            if isinstance(unit, FSDPModule):
                unit.reshard()
        self._check()

    def _check(self) -> None:
        if self._lockstep is not None:
            self._lockstep.check()


def shard_units(
    module: nn.Module,
    units: Sequence[nn.Module],
    mesh: Mesh,
    *,
    bf16: bool = False,
    in_order: bool = False,
    lockstep: Lockstep | None = None,
) -> None:
    """Shards each unit, and the rest as one; weights may still be on the meta device.

    Args:
        module: the model.
        units: what is gathered as one, in the order of the forward pass.
        mesh: the mesh.
        bf16: whether to compute in bfloat16; gradients are summed and weights kept in their own format.
        in_order: whether sums are those of `collectives.canonical`.
        lockstep: given for a model that may leave parts of itself out: collectives are noted there.
    """
    hybrid = mesh.dims.data > 1 and not in_order
    torch_mesh = mesh.torch_mesh if hybrid else mesh.torch_mesh["shard"]
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if bf16 else MixedPrecisionPolicy()
    names = {part: name or "the rest" for name, part in module.named_modules()}
    for unit in (*units, module):
        fully_shard(unit, mesh=torch_mesh, reshard_after_forward=mesh.dims.shard_stage == 3, mp_policy=policy)
        if not isinstance(unit, FSDPModule):
            raise TypeError("fully_shard did not change the module's class")
        # Sums, not means: the loss carries the only scaling there is.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
        if in_order:
            unit.set_all_reduce_hook(_tree_all_reduce(mesh.data))
        if lockstep is not None:
            # Within a unit ranks may differ: what one of them did not use has a gradient of 0 there.
            unit.set_reduce_scatter_unused_params(True, recurse=False)
            unit.set_custom_all_gather(_AllGather(lockstep, names[unit]))
        if in_order or lockstep is not None:
            unit.set_custom_reduce_scatter(_ReduceScatter(in_order, lockstep, names[unit]))


class _AllGather(DefaultAllGather):
    """FSDP's all-gather of a unit's weights, noted."""

    def __init__(self, lockstep: Lockstep, unit: str) -> None:
        self._lockstep, self._unit = lockstep, unit

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, async_op: bool = False
    ) -> dist.Work | None:
        self._lockstep.note(f"gathers {self._unit}")
        return super().__call__(output_tensor, input_tensor, group, async_op)


class _ReduceScatter(DefaultReduceScatter):
    """FSDP's reduce-scatter of a unit's gradients: in canonical order, noted, or both."""

    def __init__(self, in_order: bool, lockstep: Lockstep | None, unit: str) -> None:
        self._in_order, self._lockstep, self._unit = in_order, lockstep, unit

    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: dist.ProcessGroup, op: Any, async_op: bool = False
    ) -> dist.Work | None:
        if self._lockstep is not None:
            self._lockstep.note(f"sums {self._unit}")
        if self._in_order:
            canonical.reduce_scatter(output_tensor, input_tensor, group)
            return None
        return super().__call__(output_tensor, input_tensor, group, op, async_op)


def _tree_all_reduce(group: dist.ProcessGroup) -> Any:
    def hook(reduced: Tensor) -> None:
        canonical.all_reduce(reduced, group)

    return hook


def _local(parameter: Tensor) -> Tensor:
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def _gradient(parameter: nn.Parameter) -> Tensor:
    return _local(parameter.grad) if parameter.grad is not None else torch.zeros_like(_local(parameter))
