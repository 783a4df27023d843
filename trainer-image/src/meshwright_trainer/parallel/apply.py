"""From a model to a model spread over the mesh, in one fixed order."""

from __future__ import annotations

from typing import Final

import torch
from torch import nn

from meshwright_api.trainer import Determinism, Precision, Recompute
from meshwright_api.trainer_config import TrainerConfig
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.mesh import Mesh
from meshwright_trainer.models.base import Model
from meshwright_trainer.parallel import materialise
from meshwright_trainer.parallel.data import DataParallel
from meshwright_trainer.parallel.fsdp import FullySharded, shard_units
from meshwright_trainer.parallel.layout import Layout
from meshwright_trainer.parallel.lockstep import Lockstep
from meshwright_trainer.parallel.units import freeze, units_of
from meshwright_trainer.parallel.update_sharding import UpdateSharded
from meshwright_trainer.recompute import apply_recompute

WEIGHTS: Final = {Precision.FP64: torch.float64, Precision.FP32: torch.float32, Precision.BF16: torch.float32}
"""Format of weights and optimizer state; BF16 is the format of compute, with 32-bit masters."""


def apply(config: TrainerConfig, mesh: Mesh, model: Model) -> Layout:
    """Freezes, sets up recompute, shards or replicates, and gives the weights their first values.

    Every rank calls this at the same time with the same model. A model that has values already keeps those of rank 0.

    Raises:
        InvalidLaunch: the model and the job do not fit.
    """
    module: nn.Module = model.module
    freeze(module, config.trainable)
    module.to(WEIGHTS[config.precision])
    drawn = materialise.is_drawn(module, model.plan)
    if config.memory.recompute is Recompute.FULL:
        apply_recompute(module, model.plan)
    if not drawn:
        materialise.to_device(module, mesh.device)
        materialise.share_from_rank_0(module)
    layout = _spread(config, mesh, model, drawn)
    if drawn and model.plan is not None:
        materialise.draw(model.plan, layout.slices, config.seed)
    layout.publish()
    module.train()
    return layout


def _spread(config: TrainerConfig, mesh: Mesh, model: Model, drawn: bool) -> Layout:
    module: nn.Module = model.module
    bf16, in_order = config.precision is Precision.BF16, config.determinism is Determinism.CANONICAL
    # A built-in model runs all of itself for every micro-batch. One of a user's own need not, with a plan or without.
    own = model.plan is None or config.model.factory is not None
    lockstep = Lockstep() if own and mesh.dims.shard_stage >= 2 else None
    if mesh.dims.shard > 1:
        _check_no_scalars(module)
    if mesh.dims.shard_stage >= 2:
        units = units_of(module, model.plan)
        shard_units(module, units, mesh, bf16=bf16, in_order=in_order, lockstep=lockstep)
    if drawn:
        module.to_empty(device=mesh.device)
    if mesh.dims.shard_stage >= 2:
        return FullySharded(module, mesh, in_order=in_order, lockstep=lockstep)
    if mesh.dims.shard_stage == 1 or bf16:
        return UpdateSharded(module, mesh, bf16=bf16, in_order=in_order)
    return DataParallel(module, mesh, in_order=in_order, may_skip=own)


def _check_no_scalars(module: nn.Module) -> None:
    for name, parameter in module.named_parameters():
        if parameter.dim() == 0:
            raise InvalidLaunch(
                f"spec.trainer.model: {name} is a scalar, which cannot be sharded; give it the shape (1,), or use "
                "shardStage 0"
            )
