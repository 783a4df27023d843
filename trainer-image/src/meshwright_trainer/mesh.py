"""The mesh: which rank stands where, and the process groups along its axes.

An axis belongs to the mesh, a dim to a tensor. Ranks are numbered with the last axis fastest, so that ranks that talk
most are neighbours.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from meshwright_api.trainer_config import ParallelismConfig
from meshwright_trainer.errors import InvalidLaunch

AXES: Final = ("pipeline", "data", "shard", "context", "tensor")
"""From the outermost axis, whose ranks talk least, to the innermost."""
BACKENDS: Final = {"cpu": "gloo", "cuda": "nccl"}
"""What the collectives of a device run on."""


@dataclass(frozen=True)
class ParallelDims:
    """Sizes of the axes, and what follows from them for a rank."""

    pipeline: int = 1
    data: int = 1
    shard: int = 1
    context: int = 1
    tensor: int = 1
    shard_stage: int = 0
    """0: nothing is sharded; 1: optimizer state; 2: gradients too; 3: parameters too."""

    @classmethod
    def of(cls, config: ParallelismConfig, world_size: int) -> ParallelDims:
        """The mesh that a job asks for.

        Raises:
            InvalidLaunch: the axes do not multiply to the number of processes.
        """
        sizes = {axis: getattr(config, axis) for axis in AXES}
        dims = cls(**sizes, shard_stage=config.shard_stage)
        if dims.world_size != world_size:
            raise InvalidLaunch(
                f"spec.trainer.parallelism: {dims} needs {dims.world_size} processes, but there are {world_size}; "
                "change an axis or the number of processes"
            )
        return dims

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes in the order of `AXES`."""
        return tuple(int(getattr(self, axis)) for axis in AXES)

    @property
    def world_size(self) -> int:
        """Ranks in the mesh."""
        return math.prod(self.sizes)

    @property
    def batch_ranks(self) -> int:
        """Ranks among which the samples of a step are shared out: the view `batch` = data x shard."""
        return self.data * self.shard

    def coordinate(self, rank: int, axis: str) -> int:
        """Place of a rank on an axis."""
        place = AXES.index(axis)
        return rank // math.prod(self.sizes[place + 1 :]) % self.sizes[place]

    def batch_rank(self, rank: int) -> int:
        """Place of a rank in the view `batch`: it has the global micro-batches r, n + r, ..."""
        return self.coordinate(rank, "data") * self.shard + self.coordinate(rank, "shard")

    def __str__(self) -> str:
        axes = [f"{axis} {size}" for axis, size in zip(AXES, self.sizes, strict=True) if size > 1]
        stage = f", shard stage {self.shard_stage}" if self.shard_stage else ""
        return (" x ".join(axes) or "one rank") + stage

    def build(self, device: torch.device) -> Mesh:
        """Makes the process groups. Every rank of the default process group calls this at the same time.

        Raises:
            InvalidLaunch: the default process group is missing, has another size, or cannot serve the device.
        """
        _check_backend(self, device)
        ranks = torch.arange(self.world_size).view(self.data, self.shard)
        torch_mesh = DeviceMesh(device.type, ranks, mesh_dim_names=("data", "shard"))
        batch = torch_mesh._flatten("batch") if self.data > 1 and self.shard > 1 else None
        return Mesh(self, device, torch_mesh, batch)


@dataclass(frozen=True)
class Mesh:
    """The mesh with its process groups, as this rank sees it."""

    dims: ParallelDims
    device: torch.device
    torch_mesh: DeviceMesh
    """Axes `data` and `shard`; the others have size 1."""
    torch_batch: DeviceMesh | None
    """Both axes as one, if both are larger than 1."""

    @property
    def data(self) -> dist.ProcessGroup:
        """Ranks that hold the same part of the parameters."""
        return self.torch_mesh.get_group("data")

    @property
    def shard(self) -> dist.ProcessGroup:
        """Ranks that share one replica's parameters or optimizer state."""
        return self.torch_mesh.get_group("shard")

    @property
    def batch(self) -> dist.ProcessGroup:
        """Ranks that share the samples of a step, in the order of `ParallelDims.batch_rank`."""
        if self.torch_batch is not None:
            return self.torch_batch.get_group()
        return self.shard if self.dims.shard > 1 else self.data

    @property
    def data_rank(self) -> int:
        """This rank's place on the axis `data`."""
        return int(self.torch_mesh.get_local_rank("data"))

    @property
    def shard_rank(self) -> int:
        """This rank's place on the axis `shard`."""
        return int(self.torch_mesh.get_local_rank("shard"))


def _check_backend(dims: ParallelDims, device: torch.device) -> None:
    if not dist.is_initialized():
        raise InvalidLaunch("the default process group is missing; call torch.distributed.init_process_group first")
    if dist.get_world_size() != dims.world_size:
        raise InvalidLaunch(f"the mesh {dims} needs {dims.world_size} ranks, but there are {dist.get_world_size()}")
    wanted = BACKENDS.get(device.type)
    if wanted is None:
        raise InvalidLaunch(f"the mesh cannot be built on {device.type}; use one of {', '.join(BACKENDS)}")
    # A process group may have a backend per device: `cpu:gloo,cuda:nccl`.
    have = str(dist.get_backend_config())
    if f"{device.type}:{wanted}" not in have:
        raise InvalidLaunch(f"tensors on {device.type} need the backend {wanted}, but the process group has {have}")
