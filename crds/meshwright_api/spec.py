"""`TrainingJob.spec`: what a user asks for. The CRD, its policies and `kubectl explain` are generated from these types.

A default written here is the controller's and may change between versions: it is not written into stored objects.
What a field's default depends on other fields for is worked out by `meshwright_api.resolve`.
Whether a spec can be run is judged by `meshwright_api.checks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field, JsonValue

from meshwright_api.base import ApiModel
from meshwright_api.wishes import LevelName, Placement

MAX_PODS = 25_000
MAX_ROLES = 16
MAX_RULES = 32
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"

FreeForm = Annotated[Mapping[str, Any], Field(json_schema_extra={"x-kubernetes-preserve-unknown-fields": True})]
"""A part whose keys are not ours: it is kept as it was written."""

BY_NAME: dict[str, JsonValue] = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
"""A list whose items are told apart, and merged by server-side apply, by their name."""

RoleName = Annotated[str, Field(min_length=1, max_length=32, pattern=DNS_LABEL)]


class Agent(StrEnum):
    """Whether Meshwright's agent wraps the user's command."""

    INJECT = "Inject"
    NONE = "None"


class SuccessPolicy(StrEnum):
    """When the job has succeeded."""

    ALL_WORKERS = "AllWorkers"
    RANK_0 = "Rank0"


class CleanPodPolicy(StrEnum):
    """Which pods are deleted once the job has finished."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


class RuleAction(StrEnum):
    """What an incident that matches a rule leads to."""

    RESTART = "Restart"
    RESTART_FREE = "RestartFree"
    FAIL = "Fail"


class Backend(StrEnum):
    """Who decides when and where the gang runs."""

    NATIVE = "Native"
    KUEUE = "Kueue"
    VOLCANO = "Volcano"
    COSCHEDULING = "Coscheduling"
    POD_GROUP = "PodGroup"
    NONE = "None"


class Provisioning(StrEnum):
    """How nodes are asked for that do not exist yet."""

    NONE = "None"
    PROVISIONING_REQUEST = "ProvisioningRequest"


class Role(ApiModel):
    """Pods of one kind."""

    name: RoleName
    """Name of the role, a DNS label of at most 32 characters; it is part of the pods' names."""
    replicas: Annotated[int, Field(ge=0, le=MAX_PODS)] | None = None
    """Number of pods of the role, 0 to 25000; 0 means none. Default: what the trainer's mesh needs, else 1."""
    gpus_per_pod: Annotated[int, Field(ge=0, le=128)] | None = None
    """Whole GPUs of each pod: sets the limit `nvidia.com/gpu` of the trained container. Default: that limit, else 0."""
    processes_per_pod: Annotated[int, Field(ge=1, le=1024)] | None = None
    """Training processes in each pod. Default: the number of GPUs under torchrun or the agent, else 1.

    Where there are no GPUs, the built-in trainer has as many as the mesh leaves for each pod."""
    template: FreeForm = Field(default_factory=dict)
    """Pod template (`metadata.labels`, `metadata.annotations`, `spec`) of the role's pods, as in a Deployment.

    With the built-in trainer it may leave out the container, or the image of the container `trainer`."""
    near: RoleName | None = None
    """Name of another role whose pods this role's pods are placed as close to as there is room."""
    spread: LevelName | None = None
    """Topology level over whose domains the role's pods are dealt out as evenly as there is room.

    With the built-in trainer use `placement.spread`, which keeps replicas whole."""


class Volume(ApiModel):
    """A volume that every pod of the job mounts in its trained container. Give exactly one source."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """Name of the volume, a DNS label."""
    mount_path: Annotated[str, Field(min_length=1, max_length=512)]
    """Absolute path in the container."""
    sub_path: Annotated[str, Field(max_length=512)] | None = None
    """Path within the volume that is mounted. Default: its root."""
    read_only: bool = False
    """Mounts read-only. Default false."""
    persistent_volume_claim: FreeForm | None = None
    """Source: a claim in the job's namespace, `{claimName: NAME}`."""
    empty_dir: FreeForm | None = None
    """Source: a folder of each pod's own that lives as long as the pod, `{}` or `{medium: Memory, sizeLimit: 8Gi}`."""
    config_map: FreeForm | None = None
    """Source: a ConfigMap, `{name: NAME}`."""
    secret: FreeForm | None = None
    """Source: a Secret, `{secretName: NAME}`."""
    projected: FreeForm | None = None
    """Source: several ConfigMaps, Secrets, tokens in one folder, `{sources: [...]}`."""
    nfs: FreeForm | None = None
    """Source: an NFS export, `{server: HOST, path: /PATH}`."""
    csi: FreeForm | None = None
    """Source: an inline volume of a CSI driver, `{driver: NAME, volumeAttributes: {...}}`."""
    ephemeral: FreeForm | None = None
    """Source: a claim made for each pod, `{volumeClaimTemplate: {...}}`."""
    host_path: FreeForm | None = None
    """Source: a path of the node, `{path: /PATH}`; Pod Security of the namespace may refuse it."""

    def source(self) -> dict[str, Any]:
        """The one source as a pod has it: `{"persistentVolumeClaim": {...}}`; empty if none is given."""
        values = self.model_dump(by_alias=True, include=set(VOLUME_SOURCES), exclude_none=True)
        return dict(values)


VOLUME_SOURCES = (
    "persistent_volume_claim",
    "empty_dir",
    "config_map",
    "secret",
    "projected",
    "nfs",
    "csi",
    "ephemeral",
    "host_path",
)


class Elastic(ApiModel):
    """The sizes among which the job may shrink and grow."""

    role: RoleName = "worker"
    """Name of the role that changes size. Default `worker`."""
    replicas: Annotated[int, Field(ge=0, le=MAX_PODS)] | None = None
    """Wanted number of pods of the role; overrides the role's `replicas`. `kubectl scale` sets it."""
    min: Annotated[int, Field(ge=1, le=MAX_PODS)] | None = None
    """Least number of pods the job goes on with. Default: `replicas`."""
    max: Annotated[int, Field(ge=1, le=MAX_PODS)] | None = None
    """Greatest number of pods the job grows to. Default: `replicas`."""
    sizes: Annotated[tuple[Annotated[int, Field(ge=1, le=MAX_PODS)], ...], Field(max_length=64)] = ()
    """The numbers of pods that are allowed. Default: all from min to max that divide the mesh."""
    spares: Annotated[int, Field(ge=0, le=1000)] = 0
    """Pods kept ready to take the place of a lost one. Default 0."""


class FailureRule(ApiModel):
    """Says what an exit code or reason means for this job. The first rule that matches counts."""

    role: RoleName | None = None
    """Name of the role the rule is for. Default: all roles."""
    exit_codes: Annotated[tuple[Annotated[int, Field(ge=1, le=255)], ...], Field(max_length=255)] = ()
    """Exit codes of the trained container, 1 to 255."""
    reasons: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=128)], ...], Field(max_length=64)] = ()
    """Reasons as the kubelet or the eviction states them: `OOMKilled`, `Evicted`, `DeadlineExceeded`."""
    action: RuleAction
    """Restart (charged to maxRestarts), RestartFree (charged to maxDisruptions) or Fail."""


class FailurePolicy(ApiModel):
    """How many faults the job may survive."""

    max_restarts: Annotated[int, Field(ge=0, le=100)] = 10
    """Charged restarts allowed within windowSeconds, 0 to 100. Default 10."""
    window_seconds: Annotated[int, Field(ge=1, le=31_536_000)] = 86_400
    """Length in seconds of the sliding window in which restarts and disruptions are counted. Default 86400, a day."""
    max_disruptions: Annotated[int, Field(ge=0, le=1000)] = 100
    """Free restarts (lost nodes, evictions, preemptions) allowed within windowSeconds, 0 to 1000. Default 100."""
    evidence_seconds: Annotated[int, Field(ge=0, le=600)] = 15
    """Seconds for which evidence is gathered before an incident is judged, 0 to 600. Default 15."""
    force_delete_on_lost_node: bool = False
    """Deletes pods on a lost node without waiting for the node. Default false: their processes may still be alive."""
    rules: Annotated[tuple[FailureRule, ...], Field(max_length=MAX_RULES)] = ()
    """Rules for exit codes and reasons, in order; at most 32."""


class Health(ApiModel):
    """When a job that looks alive counts as broken."""

    heartbeat_timeout_seconds: Annotated[int, Field(ge=5, le=86_400)] = 120
    """Seconds of silence of an agent, after its first heartbeat, that count as a fault. Default 120."""
    startup_deadline_seconds: Annotated[int, Field(ge=1, le=604_800)] = 1800
    """Seconds from the first pod's creation until every pod must run. Default 1800."""
    bind_deadline_seconds: Annotated[int, Field(ge=1, le=604_800)] = 60
    """Seconds that a pinned pod may stay unbound before the gang goes back to the queue. Default 60."""
    straggler_factor: Annotated[float, Field(gt=1, le=100)] | None = None
    """A rank that is this many times slower than the median of its peers is named a straggler."""


class Queue(ApiModel):
    """How the job waits for its place."""

    priority_class_name: Annotated[str, Field(max_length=253)] | None = None
    """PriorityClass of the job and its pods. Default: the cluster's default."""
    backend: Backend = Backend.NATIVE
    """Who admits and places the gang. Default Native; None leaves each pod to kube-scheduler."""
    provisioning: Provisioning = Provisioning.NONE
    """How nodes that do not exist yet are asked for. Default None."""


class TrainingJobSpec(ApiModel):
    """What a user asks for."""

    trainer: Mapping[str, Any] | None = None
    """The built-in trainer: model, data, optimizer, parallelism. Leave it out to run your own image from `roles`."""
    roles: Annotated[tuple[Role, ...], Field(max_length=MAX_ROLES, json_schema_extra=BY_NAME)] = (Role(name="worker"),)
    """Kinds of pods, by name; at most 16. Ranks are numbered in this order. Default: one role `worker`."""
    volumes: Annotated[tuple[Volume, ...], Field(max_length=32, json_schema_extra=BY_NAME)] = ()
    """Volumes that every pod mounts in its trained container; at most 32."""
    profile: Annotated[str, Field(max_length=63)] | None = None
    """Name of an administrator's profile of fabric and image. Default: chosen by the nodes' labels."""
    placement: Placement = Placement()
    """Where the gang may sit."""
    elastic: Elastic | None = None
    """The sizes among which the job may shrink and grow. Default: one size."""
    failure_policy: FailurePolicy = FailurePolicy()
    """How many faults the job may survive."""
    health: Health = Health()
    """When a job that looks alive counts as broken."""
    queue: Queue = Queue()
    """How the job waits for its place."""
    suspend: bool = False
    """Stops the job's pods and keeps the job; set it back to resume. Default false."""
    ttl_seconds_after_finished: Annotated[int, Field(ge=0, le=315_360_000)] | None = None
    """Seconds after the end until the job is deleted. Default: never. GitOps tools make again what this deletes."""
    active_deadline_seconds: Annotated[int, Field(ge=1, le=315_360_000)] | None = None
    """Seconds the job may be active, then it fails; queueing and suspension do not count. Default: no limit."""
    success_policy: SuccessPolicy = SuccessPolicy.ALL_WORKERS
    """AllWorkers: every pod ended with 0. Rank0: the pod of rank 0 did. Default AllWorkers."""
    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """Which pods are deleted when the job has finished: those still Running, All or None. Default Running."""
    agent: Agent | None = None
    """Inject: Meshwright's agent wraps the command and reports progress. Default: Inject with trainer, else None."""
