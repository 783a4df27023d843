"""`spec.trainer`: the built-in trainer's section. Every object in it keeps unknown fields, and a policy names typos.

Defaults are the trainer's and are worked out when the launch plan is made; here a field that is left out is None.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from meshwright_api.base import ApiModel
from meshwright_api.spec import FreeForm

Count = Annotated[int, Field(ge=1, le=10**15)]
Natural = Annotated[int, Field(ge=0, le=10**15)]
Positive = Annotated[float, Field(gt=0)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Word = Annotated[str, Field(min_length=1, max_length=253)]
Text = Annotated[str, Field(min_length=1, max_length=1024)]
Factory = Annotated[str, Field(max_length=512, pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")]


class Determinism(StrEnum):
    """How far equal inputs give equal bits."""

    STRICT = "Strict"
    FAST = "Fast"
    CANONICAL = "Canonical"


class DataFormat(StrEnum):
    """Form of the training data."""

    TEXT = "Text"
    JSON_LINES = "JSONLines"
    TOKENS = "Tokens"
    IMAGES = "Images"
    TABLE = "Table"
    PAIRS = "Pairs"


class Precision(StrEnum):
    """Number format of compute."""

    FP64 = "FP64"
    FP32 = "FP32"
    BF16 = "BF16"
    FP16 = "FP16"
    FP8 = "FP8"


class ParallelismMode(StrEnum):
    """Who chooses the mesh."""

    AUTO = "Auto"
    MANUAL = "Manual"


class UpdateMode(StrEnum):
    """How the replicas' updates come together."""

    SYNCHRONOUS = "Synchronous"
    PIPE_DREAM = "PipeDream"
    PARAMETER_SERVER = "ParameterServer"
    SANDBLASTER = "Sandblaster"


class Consistency(StrEnum):
    """How far a worker may read old parameters."""

    BULK_SYNCHRONOUS = "BulkSynchronous"
    STALE_SYNCHRONOUS = "StaleSynchronous"
    BOUNDED_DELAY = "BoundedDelay"
    ASYNCHRONOUS = "Asynchronous"


class Recompute(StrEnum):
    """Which activations are computed again in the backward pass."""

    NONE = "None"
    SELECTIVE = "Selective"
    FULL = "Full"


class Resume(StrEnum):
    """Where training begins."""

    AUTO = "Auto"
    NEVER = "Never"
    FROM = "From"


class Code(ApiModel):
    """Where plug-ins come from beside the image."""

    config_map: Word | None = None
    """Name of a ConfigMap whose files are importable modules."""
    path: Text | None = None
    """Folder in the container that is put on the module path."""


class ModelInit(ApiModel):
    """Where weights come from at step 0; distinct from resuming."""

    from_: Text | None = Field(default=None, alias="from")
    """`job/NAME`, `job/NAME@STEP` or the path or URL of a checkpoint."""
    load: Annotated[tuple[Text, ...], Field(max_length=64)] = ()
    """Patterns of the parameters that are loaded. Default: all."""


class Model(ApiModel):
    """The model: a built-in one by name and preset, any field of which can be overridden, or one of your own."""

    name: Word | None = None
    """Family of a built-in model: `gpt3`, `bert`, `t5`, ..."""
    preset: Word | None = None
    """Size within the family: `1.3b`."""
    factory: Factory | None = None
    """Your own model, `package.module:function`."""
    arguments: FreeForm | None = None
    """Arguments of the factory."""
    init: ModelInit | None = None
    """Where weights come from at step 0. Default: drawn by the seed."""
    layers: Count | None = None
    """Number of layers."""
    hidden_size: Count | None = None
    """Width of the residual stream."""
    feed_forward_size: Count | None = None
    """Inner width of the feed-forward block."""
    heads: Count | None = None
    """Number of attention heads."""
    key_value_heads: Count | None = None
    """Number of key and value heads."""
    vocabulary_size: Count | None = None
    """Entries of the vocabulary."""
    max_positions: Count | None = None
    """Longest sequence, in tokens."""
    dropout: Fraction | None = None
    """Probability with which activations are dropped."""
    attention_dropout: Fraction | None = None
    """Probability with which attention weights are dropped."""
    tie_embeddings: bool | None = None
    """Whether input embedding and output head are one parameter."""
    experts: Count | None = None
    """Experts in a mixture-of-experts layer."""
    experts_per_token: Count | None = None
    """Experts that each token is sent to."""
    capacity_factor: Positive | None = None
    """Room of each expert, as a multiple of an even share of the tokens."""
    group_tokens: Count | None = None
    """Contiguous tokens of one sequence among which experts are shared out."""


class Objective(ApiModel):
    """What is minimised."""

    name: Word | None = None
    """Name of a built-in objective: `NextToken`, `MaskedToken`, `Classification`, ..."""
    factory: Factory | None = None
    """Your own objective, `package.module:function`; it returns a sum, a weight and named sums."""
    arguments: FreeForm | None = None
    """Arguments of the objective."""


class DataSource(ApiModel):
    """One source of a mixture."""

    source: Text
    """Path or URL."""
    weight: Positive | None = None
    """Share of the draws, relative to the other weights. Default 1."""
    format: DataFormat | None = None
    """Form of the data."""


class Tokenizer(ApiModel):
    """How text becomes tokens; its hash is kept in checkpoints, and another one is refused."""

    name: Word | None = None
    """Name of a built-in tokenizer: `Bytes`, `BPE`."""
    path: Text | None = None
    """File of a trained tokenizer."""


class Data(ApiModel):
    """What is trained on."""

    source: Text | None = None
    """Path or URL; the short form of one entry in sources."""
    sources: Annotated[tuple[DataSource, ...], Field(max_length=256)] = ()
    """Weighted sources, drawn deterministically by sample."""
    format: DataFormat | None = None
    """Form of the data."""
    tokenizer: Tokenizer | None = None
    """How text becomes tokens."""
    factory: Factory | None = None
    """Your own dataset, `package.module:function`."""
    arguments: FreeForm | None = None
    """Arguments of the dataset."""
    workers: Natural | None = None
    """Loader processes of each training process."""


class Batch(ApiModel):
    """How much goes into one step."""

    global_: Count | None = Field(default=None, alias="global")
    """Sequences (samples) in a step over all ranks."""
    micro: Count | None = None
    """Sequences (samples) that one rank computes at once."""
    sequence_length: Count | None = None
    """Tokens in a sequence."""


class LearningRateSchedule(ApiModel):
    """How the learning rate goes over the steps."""

    name: Word | None = None
    """Constant, Cosine, Linear, InverseSquareRoot or Step."""
    warmup_steps: Natural | None = None
    """Steps in which it rises from 0."""
    decay_steps: Count | None = None
    """Steps in which it falls. Default: to the last step."""
    minimum: Annotated[float, Field(ge=0)] | None = None
    """Value at which it ends."""
    milestones: Annotated[tuple[Count, ...], Field(max_length=64)] = ()
    """Steps at which the schedule Step multiplies by factor."""
    factor: Positive | None = None
    """What the schedule Step multiplies by."""


class Optimizer(ApiModel):
    """How parameters are updated."""

    name: Word | None = None
    """AdamW, SGD, LAMB, LARS, Adafactor, Adagrad or LBFGS."""
    factory: Factory | None = None
    """Your own optimizer, `package.module:function`."""
    arguments: FreeForm | None = None
    """Arguments of the factory."""
    learning_rate: Positive | None = None
    """Peak learning rate."""
    learning_rate_schedule: LearningRateSchedule | None = None
    """How the learning rate goes over the steps."""
    weight_decay: Annotated[float, Field(ge=0)] | None = None
    """Decoupled weight decay."""
    betas: Annotated[tuple[Fraction, ...], Field(max_length=2)] = ()
    """Decay of the first and second moment."""
    epsilon: Positive | None = None
    """Added to the denominator."""
    momentum: Fraction | None = None
    """Momentum of SGD and LARS."""
    max_grad_norm: Positive | None = None
    """Norm that the gradient is clipped to. Default: not clipped."""


class Parallelism(ApiModel):
    """The mesh: its product is replicas x processes per pod."""

    mode: ParallelismMode | None = None
    """Auto: the planner chooses. Manual: the axes below."""
    pipeline: Count | None = None
    """Pipeline stages' ranks."""
    data: Count | None = None
    """Replicas."""
    shard: Count | None = None
    """Ranks that share one replica's parameters or optimizer state."""
    shard_stage: Annotated[int, Field(ge=0, le=3)] | None = None
    """0: nothing is sharded; 1: optimizer state; 2: gradients too; 3: parameters too."""
    context: Count | None = None
    """Ranks that share a sequence."""
    tensor: Count | None = None
    """Ranks that share each layer."""
    expert: Count | None = None
    """Ranks among which experts are spread; divides shard x context."""
    pipeline_schedule: Word | None = None
    """GPipe, 1F1B, Interleaved1F1B, ZeroBubble, ..."""
    virtual_stages: Count | None = None
    """Stages on each pipeline rank."""


class Update(ApiModel):
    """How the replicas' updates come together."""

    mode: UpdateMode | None = None
    """Synchronous, PipeDream, ParameterServer or Sandblaster."""
    consistency: Consistency | None = None
    """How far a worker may read old parameters."""
    slack: Natural | None = None
    """Clocks by which a worker may be ahead of the slowest."""
    fetch_every: Count | None = None
    """Steps between two fetches of parameters."""
    push_every: Count | None = None
    """Steps between two pushes of gradients."""


class MemoryTier(ApiModel):
    """A place for parameters, optimizer state and activations."""

    name: Word
    """Device, Host or SSD."""
    bytes: Count | None = None
    """Room in bytes."""
    path: Text | None = None
    """Folder, where the tier is on disk."""


class Memory(ApiModel):
    """How memory is saved."""

    recompute: Recompute | None = None
    """Which activations are computed again in the backward pass."""
    activation_codec: Word | None = None
    """Codec that activations are kept in."""
    offload: Annotated[tuple[Word, ...], Field(max_length=8)] = ()
    """What leaves the device: Parameters, OptimizerState, Activations."""
    tiers: Annotated[tuple[MemoryTier, ...], Field(max_length=8)] = ()
    """Tiers, fastest first."""


class Checkpoint(ApiModel):
    """When and where the state is kept."""

    path: Text | None = None
    """Folder under a shared volume, or a URL."""
    every_steps: Count | None = None
    """Steps between two checkpoints."""
    every_seconds: Count | None = None
    """Seconds between two checkpoints."""
    keep: Count | None = None
    """Number of checkpoints kept."""
    resume: Resume | None = None
    """Auto: from the last one that fits. Never. From: the one in resumeFrom."""
    resume_from: Text | None = None
    """The checkpoint to resume from."""


class Evaluation(ApiModel):
    """When the model is judged on data that it is not trained on."""

    every_steps: Count | None = None
    """Steps between two evaluations."""
    batches: Count | None = None
    """Batches of each evaluation."""
    source: Text | None = None
    """Path or URL of the data."""


class Logging(ApiModel):
    """Where figures go; JSON lines always."""

    every_steps: Count | None = None
    """Steps between two lines."""
    tensor_board: Text | None = None
    """Folder for TensorBoard."""
    wandb: FreeForm | None = None
    """Weights & Biases: `{project: NAME, mode: offline}`."""


class TrainerSpec(ApiModel):
    """What the built-in trainer does."""

    seed: Natural | None = None
    """Seed of everything random."""
    determinism: Determinism | None = None
    """Strict: same bits on the same mesh. Fast. Canonical: same bits on any data and shard sizes."""
    code: Code | None = None
    """Where plug-ins come from beside the image."""
    model: Model | None = None
    """The model."""
    trainable: Annotated[tuple[Text, ...], Field(max_length=256)] = ()
    """Patterns of the parameters that are trained. Default: all."""
    objective: Objective | None = None
    """What is minimised."""
    data: Data | None = None
    """What is trained on."""
    batch: Batch | None = None
    """How much goes into one step."""
    steps: Count | None = None
    """Optimizer steps in all."""
    optimizer: Optimizer | None = None
    """How parameters are updated."""
    precision: Precision | None = None
    """Number format of compute."""
    parallelism: Parallelism | None = None
    """The mesh."""
    update: Update | None = None
    """How the replicas' updates come together."""
    memory: Memory | None = None
    """How memory is saved."""
    checkpoint: Checkpoint | None = None
    """When and where the state is kept."""
    evaluation: Evaluation | None = None
    """When the model is judged on data that it is not trained on."""
    logging: Logging | None = None
    """Where figures go."""
