"""`spec.trainer` with nothing left open.

`TrainerConfig` is what the trainer reads: the same names as in the spec, none of them optional unless absence means
something. `trainer_defaults` works the defaults out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field, ValidationError

from meshwright_api.base import ApiModel
from meshwright_api.errors import InvalidTrainer, Problem
from meshwright_api.trainer import (
    Code,
    DataFormat,
    Determinism,
    Logging,
    Model,
    Objective,
    ParallelismMode,
    Precision,
    Recompute,
    Resume,
    Tokenizer,
    UpdateMode,
)
from meshwright_api.trainer_defaults import filled


class SourceConfig(ApiModel):
    """One source of a mixture."""

    source: str
    """Path or URL."""
    weight: float = 1.0
    """Share of the draws, relative to the other weights."""
    format: DataFormat
    """Form of the data."""


class DataConfig(ApiModel):
    """What is trained on: sources, or a factory."""

    sources: tuple[SourceConfig, ...] = ()
    """Weighted sources; empty with a factory."""
    tokenizer: Tokenizer
    """How text becomes tokens."""
    factory: str | None = None
    """Your own dataset, `package.module:function`."""
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the dataset."""
    workers: int
    """Loader processes of each training process."""


class BatchConfig(ApiModel):
    """How much goes into one step."""

    global_: int = Field(alias="global")
    """Sequences (samples) in a step over all ranks; a multiple of micro x data x shard."""
    micro: int
    """Sequences (samples) that one rank computes at once."""
    sequence_length: int
    """Tokens in a sequence."""


class ScheduleConfig(ApiModel):
    """How the learning rate goes over the steps."""

    name: str
    """Constant, Cosine, Linear, InverseSquareRoot or Step."""
    warmup_steps: int
    """Steps in which it rises from 0."""
    decay_steps: int
    """Step at which it has fallen to the minimum, counted from the first."""
    minimum: float
    """Learning rate at which it ends."""
    milestones: tuple[int, ...] = ()
    """Steps at which the schedule Step multiplies by factor."""
    factor: float
    """What the schedule Step multiplies by."""


class OptimizerConfig(ApiModel):
    """How parameters are updated."""

    name: str
    """AdamW or SGD in this version."""
    factory: str | None = None
    """Your own optimizer, `package.module:function`."""
    arguments: Mapping[str, Any] = Field(default_factory=dict)
    """Arguments of the factory."""
    learning_rate: float
    """Peak learning rate."""
    learning_rate_schedule: ScheduleConfig
    """How the learning rate goes over the steps."""
    weight_decay: float
    """Decoupled weight decay."""
    betas: tuple[float, float]
    """Decay of the first and second moment."""
    epsilon: float
    """Added to the denominator."""
    momentum: float
    """Momentum of SGD."""
    max_grad_norm: float | None = None
    """Norm that the gradient is clipped to; None: not clipped."""


class ParallelismConfig(ApiModel):
    """The mesh. World size = pipeline x data x shard x context x tensor; expert divides shard x context."""

    mode: ParallelismMode
    """Manual in this version."""
    pipeline: int
    """Pipeline stages' ranks."""
    data: int
    """Replicas."""
    shard: int
    """Ranks that share one replica's parameters or optimizer state."""
    shard_stage: int
    """0: nothing is sharded; 1: optimizer state; 2: gradients too; 3: parameters too."""
    context: int
    """Ranks that share a sequence."""
    tensor: int
    """Ranks that share each layer."""
    expert: int
    """Ranks among which experts are spread."""
    pipeline_schedule: str
    """GPipe, 1F1B, Interleaved1F1B, ..."""
    virtual_stages: int
    """Stages on each pipeline rank."""

    @property
    def world_size(self) -> int:
        """Processes that the mesh needs."""
        return self.pipeline * self.data * self.shard * self.context * self.tensor


class UpdateConfig(ApiModel):
    """How the replicas' updates come together."""

    mode: UpdateMode
    """Synchronous in this version."""


class MemoryConfig(ApiModel):
    """How memory is saved."""

    recompute: Recompute
    """Which activations are computed again in the backward pass."""


class CheckpointConfig(ApiModel):
    """When and where the state is kept."""

    path: str | None = None
    """Folder under a shared volume; None: nothing is kept."""
    every_steps: int | None = None
    """Steps between two checkpoints; None with everySeconds None: only the last step is kept."""
    every_seconds: int | None = None
    """Seconds between two checkpoints."""
    keep: int
    """Number of checkpoints kept."""
    resume: Resume
    """Where training begins."""
    resume_from: str | None = None
    """The checkpoint to resume from."""


class EvaluationConfig(ApiModel):
    """When the model is judged on data that it is not trained on."""

    every_steps: int | None = None
    """Steps between two evaluations; None: only if a source is given, after the last step."""
    batches: int
    """Micro-batches of each evaluation, over all ranks."""
    source: str | None = None
    """Path or URL of the data; None: a part of the training documents is held out."""


class TrainerConfig(ApiModel):
    """Everything the built-in trainer is told, defaults worked out."""

    seed: int
    """Seed of everything random."""
    determinism: Determinism
    """How far equal inputs give equal bits."""
    code: Code | None = None
    """Where plug-ins come from beside the image."""
    model: Model
    """The model; presets are the trainer's own."""
    trainable: tuple[str, ...] = ()
    """Patterns of the parameters that are trained; empty: all."""
    objective: Objective
    """What is minimised; without name or factory the model's own objective."""
    data: DataConfig
    """What is trained on."""
    batch: BatchConfig
    """How much goes into one step."""
    steps: int
    """Optimizer steps in all."""
    optimizer: OptimizerConfig
    """How parameters are updated."""
    precision: Precision
    """Number format of compute."""
    parallelism: ParallelismConfig
    """The mesh."""
    update: UpdateConfig
    """How the replicas' updates come together."""
    memory: MemoryConfig
    """How memory is saved."""
    checkpoint: CheckpointConfig
    """When and where the state is kept."""
    evaluation: EvaluationConfig
    """When the model is judged on data that it is not trained on."""
    logging: Logging
    """Where figures go."""


def trainer_config(section: Mapping[str, Any], world_size: int, size: str = "") -> TrainerConfig:
    """Reads a trainer section, filled or not; `size` says for people how `world_size` comes about.

    Raises:
        InvalidTrainer: it cannot be run with this number of processes.
    """
    try:
        config = TrainerConfig.model_validate(filled(section, world_size))
    except ValidationError as error:
        raise InvalidTrainer(
            tuple(
                Problem(
                    ".".join(("spec.trainer", *map(str, e["loc"]))),
                    "is missing; give it a value"
                    if e["type"] == "missing"
                    else f"{e['msg']}, but it is {e['input']!r:.100}",
                )
                for e in error.errors(include_url=False, include_context=False)
            )
        ) from error
    if found := tuple(config_problems(config, world_size, size)):
        raise InvalidTrainer(found)
    return config


def config_problems(config: TrainerConfig, world_size: int, size: str = "") -> Iterator[Problem]:
    """Whether the parts of a filled section agree with each other and with the number of processes.

    Args:
        config: the section.
        world_size: training processes.
        size: how that number comes about, for people: `replicas 2 x processes per pod 4`.
    """
    mesh, batch = config.parallelism, config.batch
    size = size or "replicas x processes per pod"
    if mesh.world_size != world_size:
        yield Problem(
            "spec.trainer.parallelism",
            f"pipeline {mesh.pipeline} x data {mesh.data} x shard {mesh.shard} x context {mesh.context} x tensor "
            f"{mesh.tensor} = {mesh.world_size} ranks, but {size} = {world_size}; make them equal, or leave one "
            "out",
        )
    share = batch.micro * mesh.data * mesh.shard
    if batch.global_ % share:
        yield Problem(
            "spec.trainer.batch.global",
            f"{batch.global_} is no multiple of micro {batch.micro} x data {mesh.data} x shard {mesh.shard} = {share}; "
            f"use for example {max(1, round(batch.global_ / share)) * share}",
        )
    if mesh.shard_stage > 0 and mesh.shard == 1:
        yield Problem("spec.trainer.parallelism.shard", "shardStage shards over this axis; give it more than 1 rank")
    if mesh.shard_stage == 0 and mesh.shard > 1:
        yield Problem("spec.trainer.parallelism.shardStage", f"0 shards nothing over {mesh.shard} ranks; use 1, 2 or 3")
    # A tree of sums has the same shape for any split of its leaves only if every split is at a node of the tree.
    if config.determinism is Determinism.CANONICAL and not all(
        _is_power_of_two(size) for size in (mesh.data, mesh.shard)
    ):
        yield Problem(
            "spec.trainer.determinism",
            f"Canonical needs data and shard to be powers of two, not {mesh.data} and {mesh.shard}",
        )
    if config.data.factory is not None and config.evaluation.source is not None:
        yield Problem(
            "spec.trainer.evaluation.source",
            "a dataset of one's own brings what it is judged on as its attribute `heldout`; leave the source out",
        )
    yield from _optimizer_problems(config.optimizer)
    yield from _checkpoint_problems(config.checkpoint)


def _optimizer_problems(optimizer: OptimizerConfig) -> Iterator[Problem]:
    schedule = optimizer.learning_rate_schedule
    if schedule.name in ("Cosine", "Linear") and schedule.warmup_steps > schedule.decay_steps:
        yield Problem(
            "spec.trainer.optimizer.learningRateSchedule.warmupSteps",
            f"{schedule.warmup_steps} is beyond decaySteps {schedule.decay_steps} (by default the job's steps); make "
            "it less",
        )
    if max(optimizer.betas) >= 1:
        # The bias correction divides by 1 - beta^n.
        yield Problem(
            "spec.trainer.optimizer.betas", f"must be below 1, for example [0.9, 0.95], not {optimizer.betas}"
        )


def _checkpoint_problems(checkpoint: CheckpointConfig) -> Iterator[Problem]:
    """A policy that would be passed over in silence."""
    at = "spec.trainer.checkpoint"
    begins_from = checkpoint.resume is Resume.FROM
    if begins_from and checkpoint.resume_from is None:
        yield Problem(f"{at}.resumeFrom", "is missing; resume: From needs the path of a checkpoint")
    if checkpoint.resume_from is not None and not begins_from:
        yield Problem(
            f"{at}.resumeFrom",
            f"counts only with resume: From, not with {checkpoint.resume}; set both, or leave it out",
        )
    if checkpoint.path is None and (begins_from or checkpoint.every_steps or checkpoint.every_seconds):
        yield Problem(f"{at}.path", "is missing, so nothing would be kept; give a folder, for example /checkpoints")


def _is_power_of_two(value: int) -> bool:
    return value & (value - 1) == 0
