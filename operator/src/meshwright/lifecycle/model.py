"""The values that one pass over one job reads and returns.

An `Observation` is everything a decision may depend on; a `Decision` is everything it may cause. Both are plain data,
so that a pass can be logged, replayed, and explored exhaustively.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Literal

from meshwright.progress import Progress
from meshwright_api.status import PlacementStatus, TrainingJobStatus

FailureAction = Literal["Restart", "RestartFree", "Fail"]


class PodState(StrEnum):
    """How far the judged container of a pod is."""

    WAITING = "Waiting"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class Identity:
    """Which pod of which incarnation; created at most once in the life of a job."""

    role: str
    index: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Pod:
    """What a decision needs of a pod that the job owns."""

    name: str
    uid: str
    identity: Identity
    state: PodState = PodState.WAITING
    node: str = ""
    created_at: datetime | None = None
    stop_requested_at: datetime | None = None
    """When its deletion was asked for (deletionTimestamp less the grace period), by the API server's clock."""
    finished_at: datetime | None = None
    """When the judged container ended, by the node's clock."""
    exit_code: int | None = None
    reason: str = ""
    """Reason of the judged container's end or of the pod's failure: `Error`, `OOMKilled`, `Evicted`, ..."""
    disruption: str = ""
    """Reason of the DisruptionTarget condition, if it is true."""
    waiting: str = ""
    """Why the container does not run yet: `ImagePullBackOff`, `Unschedulable`, ..."""
    last_words: str = ""
    """End of the output, or what the kubelet or the scheduler says of it; at most 1 KiB."""
    image_id: str = ""
    pinned: str = ""
    """The node that it was made for, also while it is not bound there."""
    lingers: bool = False
    """Whether a container beside the judged one runs on after its end, so that the pod keeps its room."""

    @property
    def ended(self) -> bool:
        """Whether the judged container is known to run no more."""
        return self.state in (PodState.SUCCEEDED, PodState.FAILED)

    @property
    def over(self) -> bool:
        """Whether it has ended and nothing of it runs any more."""
        return self.ended and not self.lingers

    @property
    def stopping(self) -> bool:
        """Whether somebody asked for its deletion."""
        return self.stop_requested_at is not None


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of the failure policy; empty fields match everything."""

    action: FailureAction
    role: str = ""
    exit_codes: tuple[int, ...] = ()
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoleSize:
    """A role's size and how long its pods may take to stop."""

    name: str
    replicas: int
    grace_seconds: int = 30


@dataclass(frozen=True, slots=True)
class Policy:
    """What decisions need of a spec, with every default resolved."""

    roles: tuple[RoleSize, ...]
    suspend: bool = False
    max_restarts: int = 10
    window_seconds: int = 86400
    max_disruptions: int = 100
    evidence_seconds: int = 15
    rules: tuple[Rule, ...] = ()
    force_delete_on_lost_node: bool = False
    startup_deadline_seconds: int = 1800
    bind_deadline_seconds: int = 60
    ttl_seconds: int | None = None
    active_deadline_seconds: int | None = None
    clean_pods: Literal["Running", "All", "None"] = "Running"
    success: Literal["AllWorkers", "Rank0"] = "AllWorkers"
    mesh: str = ""
    agent: bool = False
    """Whether an agent starts the processes: then its exit codes mean what it says they mean."""

    @property
    def size(self) -> int:
        """Pods in the gang."""
        return sum(role.replicas for role in self.roles)

    def members(self) -> Iterator[tuple[str, int]]:
        """Every (role, index) of the gang, in rank order."""
        return ((role.name, index) for role in self.roles for index in range(role.replicas))

    def grace_of(self, role: str) -> int:
        """Seconds that a pod of the role may take to stop."""
        return next((r.grace_seconds for r in self.roles if r.name == role), 30)


@dataclass(frozen=True, slots=True)
class Job:
    """The job as it was read."""

    name: str
    namespace: str
    uid: str
    generation: int
    resource_version: str
    policy: Policy | None
    """None when the spec cannot be run; `problem` says why."""
    problem: str = ""
    deleting: bool = False
    status_readable: bool = True
    """False when the status is in no form that this version knows: then nothing is known, and nothing is done."""
    holds_domains: bool = False
    """Whether it has ComputeDomains, which go last."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What the gang queue answered: a place (the hash of the plan that would be committed), or the reason why not."""

    plan_sha256: str = ""
    reason: str = ""
    message: str = ""
    """Why not; or what of its wishes a placed gang does not have."""
    placement: PlacementStatus | None = None
    """Where the place is in the topology."""
    counts_ended_pods: bool = False
    """Whether the quota that keeps it out counts pods that have ended, until they are removed."""


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything that a decision may depend on."""

    now: datetime
    job: Job
    status: TrainingJobStatus
    pods: tuple[Pod, ...] = ()
    """Every pod that the job owns, of all incarnations, as far as the cache knows."""
    pods_confirmed: bool = False
    """Whether `pods` is a fresh list rather than the cache."""
    vanished: frozenset[Identity] = frozenset()
    """Pods that this process has seen and that are gone."""
    lost_nodes: frozenset[str] = frozenset()
    """Nodes that are gone or have been NotReady for long enough to be called lost."""
    plan_stored: str = ""
    """Hash of the plan that the API server holds for the current incarnation; empty if there is none."""
    plan_in_hand: str = ""
    """Hash of the plan that this process holds in memory."""
    offer: Offer | None = None
    preempted: bool = False
    """Whether the gang must give its places to one of higher priority."""
    undisturbed_since: datetime | None = None
    """Since when no pod of an older incarnation was stopping; the bind deadline counts from here."""
    refusal: str = ""
    """The API server's words when it last refused to create a pod of the gang; empty if it did not."""
    progress_due: bool = True
    """Whether enough time has passed for a write that only refreshes counts or messages."""
    progress: Progress | None = None
    """What the job's agent last said to this process."""


@dataclass(frozen=True, slots=True)
class CreatePod:
    """Create this pod from the frozen plan; that it exists already is success."""

    identity: Identity


@dataclass(frozen=True, slots=True)
class DeletePod:
    """Delete exactly this pod (UID precondition)."""

    name: str
    uid: str
    grace_seconds: int


@dataclass(frozen=True, slots=True)
class StorePlan:
    """Store the plan in hand, and the Service, before the first pod needs them."""

    plan_sha256: str
    incarnation: int


@dataclass(frozen=True, slots=True)
class DeleteJob:
    """Delete the job itself: its time to live has passed."""

    uid: str


@dataclass(frozen=True, slots=True)
class ReleaseDomains:
    """Delete the job's ComputeDomains, then let the job go: nothing of it runs any more."""

    uid: str


Action = CreatePod | DeletePod | StorePlan | DeleteJob | ReleaseDomains


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do now. A pass writes the status or acts, never both: what an effect relies on is durable before it."""

    status: TrainingJobStatus | None = None
    actions: tuple[Action, ...] = ()
    confirm_pods: bool = False
    """Read the pods afresh and decide again: something is missing that the cache may merely not know yet."""
    wake_after: float | None = None
    """Seconds until the decision may change without any event."""
    why: str = ""
    """One line for the log."""
