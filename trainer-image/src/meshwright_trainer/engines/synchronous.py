"""Synchronous training: a step is one update with the gradient of all its samples, whatever ranks they lie on.

Gradients are sums everywhere. The one scaling there is stands at the loss: 1 / weight of all targets of the step, which
is known before the first backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from meshwright_api.trainer import Determinism
from meshwright_api.trainer_config import TrainerConfig
from meshwright_trainer.batch import Batch, Window
from meshwright_trainer.checkpoint.pieces import Piece
from meshwright_trainer.engines.base import Evaluated, StepResult
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.mesh import Mesh, ParallelDims
from meshwright_trainer.models.base import Model
from meshwright_trainer.objectives.base import Loss, Objective
from meshwright_trainer.optim.foreign import ForeignOptimizer
from meshwright_trainer.optim.norms import canonical_norm, clip_coefficient, global_norm
from meshwright_trainer.optim.optimizer import Optimizer, RuleOptimizer
from meshwright_trainer.optim.updates import rule_of
from meshwright_trainer.parallel.apply import apply
from meshwright_trainer.parallel.layout import Layout
from meshwright_trainer.parallel.refusals import check_supported
from meshwright_trainer.random import Key
from meshwright_trainer.schedule import check_schedule, learning_rate


def build_engine(
    config: TrainerConfig, dims: ParallelDims, model: Model, objective: Objective, device: torch.device
) -> SynchronousEngine:
    """Spreads a model over the mesh and makes its optimizer. Every rank calls this at the same time.

    Args:
        config: the job.
        dims: its mesh; the default process group has as many ranks.
        model: the model, on the meta device or with values.
        objective: what is minimised.
        device: where this rank computes.

    Raises:
        Refused: the job asks for something that is not part of this version.
        InvalidLaunch: its parts do not fit.
    """
    check_supported(config)
    check_schedule(config.optimizer.learning_rate_schedule)
    mesh = dims.build(device)
    layout = apply(config, mesh, model)
    trained = [s for s in layout.slices if s.trainable]
    no_decay = model.plan.no_decay if model.plan is not None else ()
    optimizer: Optimizer
    if config.optimizer.factory is not None:
        optimizer = ForeignOptimizer(config.optimizer, trained, no_decay, first=mesh.shard_rank == 0)
    else:
        rule = rule_of(config.optimizer, in_order=config.determinism is Determinism.CANONICAL)
        optimizer = RuleOptimizer(config.optimizer, rule, trained, no_decay)
    return SynchronousEngine(config, mesh, layout, optimizer, objective, model.module)


@dataclass(frozen=True)
class _Prepared:
    """A micro-batch as the model sees it."""

    batch: Batch
    key: Key


class SynchronousEngine:
    """Implements `engines.base.Engine`; see there."""

    def __init__(
        self,
        config: TrainerConfig,
        mesh: Mesh,
        layout: Layout,
        optimizer: Optimizer,
        objective: Objective,
        module: nn.Module,
    ) -> None:
        self.mesh = mesh
        """The mesh that it runs on."""
        self._config, self._layout, self._module = config, layout, module
        self._optimizer, self._objective = optimizer, objective
        self._applied = 0

    def run(self, window: Window) -> StepResult:
        """One step over all ranks' micro-batches."""
        prepared = [self._prepare(batch, window.step) for batch in window.micro_batches]
        weight = self._total([self._objective.weight(p.batch) for p in prepared])
        scale = 1.0 / weight if weight > 0 else 0.0
        losses: list[Loss] = []
        for i, micro in enumerate(prepared):
            with self._layout.micro_batch(last=i == len(prepared) - 1):
                loss = self._objective(self._layout.forward(micro.batch, micro.key), micro.batch)
                (loss.sum * scale).backward()
            losses.append(_without_graph(loss))
        norm, skipped = self._update(weight)
        self._layout.clear()
        names, totals = self._totals(losses)
        return StepResult(
            loss=totals[0] * scale,
            weight=weight,
            norm=norm,
            sums={name: total * scale for name, total in zip(names, totals[1:], strict=True)},
            skipped=skipped,
        )

    def drain(self) -> None:
        """Nothing is ever in flight between two steps."""

    def pieces(self) -> Mapping[str, Piece]:
        """Weights as the optimizer updates them, its state, and what else the module keeps.

        Buffers, such as running statistics, are each replica's own; those of rank 0 are kept.
        """
        weights = {
            f"model/{s.name}": Piece(s.box.shape, s.box.offsets, s.tensor, s.owner, not s.trainable)
            for s in self._layout.slices
        }
        first = self.mesh.data_rank == 0 and self.mesh.shard_rank == 0
        buffers = {
            f"model/{name}": Piece(tuple(buffer.shape), (0,) * buffer.dim(), buffer, first)
            for name, buffer in kept_buffers(self._module)
        }
        return {**weights, **buffers, **self._optimizer.pieces()}

    def scalars(self) -> Mapping[str, float | int]:
        """The number of applied updates, which the learning rate follows."""
        return {"applied": self._applied}

    def restore(self, scalars: Mapping[str, float | int]) -> None:
        """Goes on from pieces that were read.

        Raises:
            InvalidLaunch: the number of applied updates is missing.
        """
        if "applied" not in scalars:
            raise InvalidLaunch("the checkpoint does not say how many updates were applied; it is of another engine")
        self._applied = int(scalars["applied"])
        self._layout.publish()

    def evaluate(self, batches: Iterable[Batch]) -> Evaluated:
        """Loss without update, without dropout."""
        losses: list[Loss] = []
        weights: list[Tensor] = []
        with self._layout.evaluation() as model:
            for batch in batches:
                # Step 0 is no training step: what an objective hides is then the same in every evaluation.
                micro = self._prepare(batch, step=0)
                losses.append(_without_graph(self._objective(model(micro.batch, micro.key), micro.batch)))
                weights.append(self._objective.weight(micro.batch))
        weight = self._total(weights)
        scale = 1.0 / weight if weight > 0 else 0.0
        names, totals = self._totals(losses)
        sums = {name: total * scale for name, total in zip(names, totals[1:], strict=True)}
        return Evaluated(loss=totals[0] * scale, weight=weight, sums=sums)

    def _prepare(self, batch: Batch, step: int) -> _Prepared:
        batch = batch.to(self.mesh.device)
        # Places in the sample, not in the document: two documents of a sample must not share their masks.
        length = batch.position_id.shape[1]
        position = torch.arange(length, device=self.mesh.device)
        key = Key(self._config.seed, step, batch.sample_id, position)
        return _Prepared(self._objective.prepare(batch, key), key)

    def _update(self, weight: float) -> tuple[float, bool]:
        """Norm of the gradient, and whether the update was left out. All ranks see the same norm, so all agree."""
        gradients = self._layout.gradients()
        group = self.mesh.shard if self._layout.split else None
        if self._config.determinism is Determinism.CANONICAL:
            boxes = [s.box for s in self._layout.slices if s.trainable]
            norm = canonical_norm(gradients, boxes, group)
        else:
            norm = global_norm(gradients, group)
        if weight == 0 or not math.isfinite(norm):
            return norm, True
        coefficient = clip_coefficient(norm, self._config.optimizer.max_grad_norm)
        if coefficient < 1.0:
            torch._foreach_mul_(gradients, coefficient)
        with torch.no_grad():
            rate = learning_rate(self._config.optimizer, self._applied)
            self._optimizer.update(gradients, rate=rate, count=self._applied + 1)
            self._layout.publish()
        self._applied += 1
        return norm, False

    def _totals(self, losses: Sequence[Loss]) -> tuple[list[str], list[float]]:
        """Names of the objective's sums, and totals over all ranks: of the loss, then of the sums."""
        names = sorted(losses[0].sums) if losses else []
        columns = [[loss.sum for loss in losses], *([loss.sums[name] for loss in losses] for name in names)]
        return names, self._sums(columns)

    def _total(self, values: Sequence[Tensor]) -> float:
        return self._sums([values])[0]

    def _sums(self, columns: Sequence[Sequence[Tensor]]) -> list[float]:
        """Totals of each column over all micro-batches of all ranks; every rank gives equally many values.

        `fsum` rounds once, so the totals have the same bits whatever the order and the mesh.
        """
        if not columns[0]:
            return [0.0] * len(columns)
        mine_KM = torch.stack([torch.stack([v.detach().double() for v in column]) for column in columns])
        mine_KM = mine_KM.to(self.mesh.device)
        group = self.mesh.batch
        everyone = mine_KM.new_empty(group.size(), *mine_KM.shape)
        dist.all_gather_into_tensor(everyone, mine_KM[None].contiguous(), group=group)
        rows = everyone.transpose(0, 1).flatten(1).tolist()
        return [math.fsum(row) if all(map(math.isfinite, row)) else sum(row) for row in rows]


def kept_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """The buffers that belong to a module's state, by name; each once."""
    kept = module.state_dict().keys()
    return ((name, buffer) for name, buffer in module.named_buffers() if name in kept)


def _without_graph(loss: Loss) -> Loss:
    return Loss(loss.sum.detach(), {name: value.detach() for name, value in loss.sums.items()})
