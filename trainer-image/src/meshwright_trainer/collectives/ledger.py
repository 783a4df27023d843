"""Counts what collectives send, by the axis of the mesh that they run along.

The figure is what a rank sends in the bandwidth-optimal algorithm (Patarasuk and Yuan 2009), whatever the backend does:
with n ranks and a whole tensor of S bytes, all-gather, reduce-scatter and all-to-all send S (n-1)/n, all-reduce twice
as much; a broadcast counts as S.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from meshwright_trainer.mesh import Mesh

_ONE_WAY = ("allgather", "reduce_scatter", "alltoall")
"""Parts of the names of those that send every byte once."""


class Ledger(TorchDispatchMode):
    """Counts while it is entered.

    Every call of torch.distributed passes the dispatcher, also those that DDP and FSDP make; on an accelerator those of
    the backward pass come from another thread and are not seen.
    """

    def __init__(self, mesh: Mesh) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        groups = {"batch": mesh.batch, "shard": mesh.shard, "data": mesh.data}
        # With one of data and shard of size 1 the other's group is the view `batch` too; the axis has the name.
        self._axes = {g.group_name: axis for axis, g in groups.items()}
        self._bytes: Counter[str] = Counter()

    @property
    def bytes_by_axis(self) -> Mapping[str, int]:
        """Bytes that this rank sent along each axis."""
        return dict(self._bytes)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Counts a collective, then lets it run."""
        if func.namespace == "c10d":
            group = next((g for g in map(_group, args) if g is not None), None)
            if group is not None and group.size() > 1:
                axis = self._axes.get(group.group_name, "world")
                self._bytes[axis] += _sent(func.name(), list(_tensors(args)), group.size())
        call: Callable[..., Any] = func
        return call(*args, **(kwargs or {}))


def _sent(name: str, tensors: list[Tensor], ranks: int) -> int:
    """Bytes that one rank sends. The whole tensor is the largest argument."""
    whole = max((t.numel() * t.element_size() for t in tensors), default=0)
    if "allreduce" in name:
        return 2 * whole * (ranks - 1) // ranks
    return whole * (ranks - 1) // ranks if any(part in name for part in _ONE_WAY) else whole


def _group(argument: Any) -> dist.ProcessGroup | None:
    if isinstance(argument, torch.ScriptObject) and "ProcessGroup" in str(argument._type()):
        return dist.ProcessGroup.unbox(argument)
    return None


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _tensors(part)
