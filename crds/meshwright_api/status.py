"""`TrainingJob.status`: everything the operator remembers. Nothing here grows with the number of pods."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from meshwright_api.base import ApiModel, Timestamp
from meshwright_api.traffic import LevelUse

MAX_INCIDENTS = 20
MAX_LAST_WORDS = 1024


class Phase(StrEnum):
    """Where a job is in its life. `meshwright.lifecycle.phases` holds the one table of transitions."""

    PENDING = "Pending"
    ADMITTED = "Admitted"
    STARTING = "Starting"
    RUNNING = "Running"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class Cause(StrEnum):
    """What an incident was judged to come from, in the order of precedence."""

    NODE_LOST = "NodeLost"
    DISRUPTED = "Disrupted"
    FENCED = "Fenced"
    OUT_OF_MEMORY = "OutOfMemory"
    RULE = "Rule"
    EXIT_CODE = "ExitCode"
    EVICTED = "Evicted"
    KUBELET_REFUSED = "KubeletRefused"
    POD_LOST = "PodLost"
    PREEMPTED = "Preempted"
    STARTUP_DEADLINE = "StartupDeadline"
    BIND_DEADLINE = "BindDeadline"
    PLAN_LOST = "PlanLost"


class Culprit(ApiModel):
    """The pod that an incident was judged to begin with."""

    pod: str = ""
    """Name of the pod."""
    pod_uid: str = Field(default="", alias="podUID")
    """UID of the pod."""
    role: str = ""
    """Role of the pod."""
    index: int | None = None
    """Index of the pod in its role."""
    node: str = ""
    """Node that the pod ran on; empty if it was never bound."""
    exit_code: int | None = None
    """Exit code of the judged container, if it ended."""
    reason: str = ""
    """The kubelet's or the eviction's own word: `Error`, `OOMKilled`, `Evicted`, ..."""
    finished_at: Timestamp | None = None
    """When the judged container ended, by the node's clock."""
    last_words: str = ""
    """Up to 1 KiB of the end of its output."""


class OpenIncident(ApiModel):
    """An incident that is not judged yet: the old processes are being stopped and evidence is gathered."""

    attempt: int
    """The attempt that the incident ended."""
    opened_at: Timestamp
    """When the operator first saw it."""
    trigger: Cause
    """What was seen first."""
    evidence: Culprit = Culprit()
    """The pod that was seen first."""


class Incident(ApiModel):
    """A judged incident."""

    attempt: int
    """The attempt that the incident ended."""
    trigger: Cause
    """What was seen first."""
    cause: Cause
    """What it was judged to come from."""
    charged: bool
    """Whether it counts against `failurePolicy.maxRestarts`; otherwise it counts against `maxDisruptions`."""
    action: Literal["Restart", "RestartFree", "Fail"]
    """What the failure policy made of it."""
    culprit: Culprit = Culprit()
    """The pod that it began with."""
    opened_at: Timestamp
    """When it was first seen."""
    judged_at: Timestamp
    """When it was judged."""
    seconds_lost: int | None = None
    """Seconds from the opening until every pod of the next attempt ran; unset until then."""
    step_reached: int | None = None
    """Steps that the attempt had done, as its agent last reported; unset if it reported none."""
    step_resumed: int | None = None
    """Step of the checkpoint that the next attempt went on from; unset if none is known, and until it reports."""


class Condition(ApiModel):
    """A condition in the form that `kubectl wait --for=condition=...` reads."""

    type: str
    """Type of the condition, CamelCase."""
    status: Literal["True", "False", "Unknown"]
    """Whether it holds."""
    reason: str
    """Machine-readable reason, CamelCase."""
    message: str = ""
    """A sentence with numbers, and the next step where there is one."""
    observed_generation: int = 0
    """Generation of the spec that this was judged from."""
    last_transition_time: Timestamp
    """When `status` last changed."""


class RoleIndexes(ApiModel):
    """Some indexes of one role."""

    role: str
    """Name of the role."""
    indexes: str
    """Indexes as ranges: `0-3,7`."""


class PodCounts(ApiModel):
    """How many pods of the gang are in which state."""

    desired: int = 0
    """Pods in the gang."""
    running: int = 0
    """Pods whose judged container runs."""
    succeeded: int = 0
    """Pods that ended with exit code 0."""


class Progress(ApiModel):
    """How far the training has come, as rank 0's agent last reported it."""

    attempt: int | None = None
    """The attempt that reported this."""
    step: int | None = None
    """Steps done."""
    total_steps: int | None = None
    """Steps asked for."""
    loss: str = ""
    """Training loss of the last logged step, as a decimal number."""
    tokens_per_second: int | None = None
    """Tokens (samples, where there are no tokens) per second over all ranks."""
    mfu_percent: int | None = Field(default=None, alias="mfuPercent")
    """Model FLOPs utilisation, percent of the devices' peak."""
    eta_seconds: int | None = None
    """Estimated seconds until the last step."""
    observed_at: Timestamp | None = None
    """When this was reported."""


class CheckpointStatus(ApiModel):
    """The last checkpoint that is durable."""

    step: int | None = None
    """Step that it holds."""
    name: str = ""
    """Its name under `checkpoint.path`."""
    committed_at: Timestamp | None = None
    """When it was committed."""


class GoodputSeconds(ApiModel):
    """Seconds of the job's life since it was first admitted, by what they went to."""

    productive: int = 0
    """Steps that were kept."""
    queued: int = 0
    """Waiting for a place."""
    starting: int = 0
    """From placement to the first step."""
    checkpointing: int = 0
    """Steps stalled by checkpoints."""
    recomputing: int = 0
    """Doing again the steps that an incident lost."""
    restarting: int = 0
    """From an incident to the next first step."""
    suspended: int = 0
    """Suspended by the user."""


class Goodput(ApiModel):
    """The share of its active time that the job spent on steps that were kept."""

    percent: int | None = None
    """Productive seconds of all seconds that were neither queued nor suspended, percent."""
    seconds: GoodputSeconds = GoodputSeconds()
    """The ledger."""


class PlacementStatus(ApiModel):
    """Where the gang sits in the topology, in counts."""

    levels: tuple[LevelUse, ...] = ()
    """Levels of the topology, outermost first."""


class TrainingJobStatus(ApiModel):
    """What the operator knows of a TrainingJob; written only by it."""

    phase: Phase | None = None
    """Where the job is in its life."""
    reason: str = ""
    """One CamelCase word: why the job is in this phase."""
    observed_generation: int = 0
    """Generation of the spec that the operator last acted on."""
    attempt: int = 0
    """Number of the process generation: it fences checkpoints. 0 before the first admission."""
    incarnation: int = 0
    """Number of the gang's set of pods; part of their names."""
    plan_sha256: str = Field(default="", alias="planSHA256")
    """SHA-256 of the committed plan (launch plan, placement and frozen rendering)."""
    planned: int = 0
    """The attempt that the committed plan belongs to; lower than `attempt` while the next plan is awaited."""
    launched: int = 0
    """The attempt whose pods have all been created."""
    incident: OpenIncident | None = None
    """The incident that is open now."""
    incidents: tuple[Incident, ...] = ()
    """The last 20 incidents, oldest first."""
    charged_restarts: tuple[Timestamp, ...] = ()
    """When restarts were charged; only those within the window matter."""
    disruptions: tuple[Timestamp, ...] = ()
    """When free restarts happened; only those within the window matter."""
    restarts: int = 0
    """Restarts in all, charged or not."""
    succeeded: tuple[RoleIndexes, ...] = ()
    """By role, the indexes that ended with exit code 0 in this incarnation."""
    pods: PodCounts = PodCounts()
    """Pod counts, as of the last transition."""
    ready: str = ""
    """`running/desired`, for people."""
    mesh: str = ""
    """The effective mesh, for people: `pipeline=4 data=4 tensor=8`."""
    placement: PlacementStatus | None = None
    """Where the gang sits in the topology; unset without a topology, and while it waits."""
    image_id: str = Field(default="", alias="imageID")
    """Digest of the judged container's image, from the first pod that ran."""
    start_time: Timestamp | None = None
    """When the job was first admitted."""
    admitted_time: Timestamp | None = None
    """When the plan of the planned attempt was committed; start-up deadlines count from here."""
    completion_time: Timestamp | None = None
    """When the job Succeeded or Failed."""
    active_since: Timestamp | None = None
    """Since when the clock of `activeDeadlineSeconds` runs; unset while queueing or suspended."""
    active_seconds: int = 0
    """Seconds that clock had counted before `activeSince`."""
    conditions: tuple[Condition, ...] = ()
    """Accepted, Scheduled, Running, Suspending, Suspended, Succeeded, Failed."""
    progress: Progress | None = None
    """How far the training has come; unset without an agent."""
    checkpoint: CheckpointStatus | None = None
    """The last durable checkpoint; unset without an agent."""
    goodput: Goodput | None = None
    """Where the job's time went; unset without an agent."""
