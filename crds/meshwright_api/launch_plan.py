"""`LaunchPlan`: what one attempt of a job is, as its pods read it (`/etc/meshwright/plan.json`).

Its size grows with the number of topology domains, not of pods: names are patterns, groups are rank ranges, and the
few pods that were replaced one by one are exceptions. Writers and readers of different versions meet here, so readers
ignore what they do not know and refuse only a plan whose `minReader` is newer than they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import Field, ValidationError

from meshwright_api.base import ApiModel
from meshwright_api.errors import PlanTooNew, PlanUnreadable
from meshwright_api.traffic import LevelUse

VERSION = 1
"""Version of the plans that this package writes and the newest that it reads."""


class JobRef(ApiModel):
    """The TrainingJob that the plan belongs to."""

    name: str
    """Name of the job."""
    namespace: str
    """Namespace of the job."""
    uid: str
    """UID of the job."""


class RolePlan(ApiModel):
    """The pods of one role and the ranks of their processes."""

    name: str
    """Name of the role."""
    replicas: int
    """Pods of the role in this attempt."""
    processes_per_pod: int
    """Training processes in each pod."""
    first_rank: int
    """Rank of process 0 of pod 0; ranks are contiguous within a role, pod after pod."""
    host_pattern: str
    """Host name of a pod, with `{index}` and `{incarnation}` to fill in."""


class Replacement(ApiModel):
    """A pod that was replaced alone and so has an incarnation of its own."""

    role: str
    """Name of the role."""
    index: int
    """Index of the pod in its role."""
    incarnation: int
    """Incarnation of the pod."""


class Axis(ApiModel):
    """One axis of the parallelism mesh."""

    name: str
    """pipeline, data, shard, context, tensor or expert."""
    size: int
    """Number of ranks along the axis."""


class Group(ApiModel):
    """The ranks that share one domain of a topology level."""

    level: str
    """Topology level: `node`, `nvlink`, `leaf`, ..."""
    domain: str
    """Name of the domain: its whole path from the outermost level."""
    ranks: str
    """Ranks as ranges: `0-31,64-95`."""


class Rendezvous(ApiModel):
    """Where the processes meet."""

    id: str
    """Identity of the meeting; another attempt's processes cannot enter it."""
    host: str
    """Host name of rank 0."""
    port: int
    """TCP port on that host."""


class Heartbeat(ApiModel):
    """Where and how often agents report."""

    url: str
    """Endpoint of the operator."""
    interval_seconds: float
    """Seconds between two reports."""
    timeout_seconds: float
    """Seconds of silence that count as a fault."""


class Fence(ApiModel):
    """What keeps an older attempt from writing checkpoints."""

    attempt: int
    """The attempt that may write."""
    base: str = ""
    """Checkpoint that this attempt resumes from; never pruned. Empty: none is known."""


class LaunchPlan(ApiModel):
    """One attempt of a job, as its pods read it."""

    version: int = VERSION
    """Version of the writer's format."""
    min_reader: int = 1
    """Oldest reader that understands this plan rightly."""
    job: JobRef
    """The job."""
    attempt: int
    """Number of the process generation."""
    incarnation: int
    """Number of the gang's set of pods."""
    roles: tuple[RolePlan, ...]
    """Roles in rank order; roles without pods are left out."""
    replacements: tuple[Replacement, ...] = ()
    """Pods with an incarnation of their own, at most 32."""
    world_size: int
    """Number of training processes in all roles."""
    mesh: tuple[Axis, ...] = ()
    """Axes of the mesh, outermost first; empty without the built-in trainer."""
    groups: tuple[Group, ...] = ()
    """Ranks by topology domain, outermost level first; empty where the topology is unknown.

    Levels that would make the plan too long, most often the single nodes, are left out."""
    levels: tuple[LevelUse, ...] = ()
    """Levels of the topology, outermost first, and what crosses them; empty where the topology is unknown."""
    exclusive: str = ""
    """Topology level whose domains the job shares with no other; empty: it shares them."""
    rendezvous: Rendezvous
    """Where the processes meet."""
    heartbeat: Heartbeat | None = None
    """Where agents report; unset without an agent."""
    trainer: Mapping[str, Any] | None = None
    """Section `trainer` of the spec, resolved; unset with the user's own image."""
    fence: Fence = Field(default_factory=lambda: Fence(attempt=0))
    """What keeps an older attempt from writing checkpoints."""

    def to_json(self) -> str:
        """The one canonical text of this plan: sorted keys, no spaces; equal plans have equal bytes."""
        return json.dumps(self.model_dump(mode="json", by_alias=True), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> LaunchPlan:
        """Reads a plan of this or any later writer.

        Raises:
            PlanTooNew: the plan says that this reader would misunderstand it.
            PlanUnreadable: the text is no launch plan.
        """
        try:
            document = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise PlanUnreadable(f"the launch plan is not JSON: {error}") from error
        needed = document.get("minReader", 1) if isinstance(document, dict) else None
        if isinstance(needed, int) and needed > VERSION:
            raise PlanTooNew(
                f"the launch plan needs a reader of version {needed}, this one is {VERSION}: update the image"
            )
        try:
            return cls.model_validate(document)
        except ValidationError as error:
            raise PlanUnreadable(f"the launch plan cannot be read: {error}") from error

    def host(self, role: str, index: int) -> str:
        """Host name of a pod.

        Raises:
            KeyError: there is no such pod in the plan.
        """
        plan = next((r for r in self.roles if r.name == role), None)
        if plan is None or not 0 <= index < plan.replicas:
            raise KeyError(f"no pod {index} of role {role!r} in the plan of job {self.job.name!r}")
        own = (r.incarnation for r in self.replacements if (r.role, r.index) == (role, index))
        return plan.host_pattern.format(index=index, incarnation=next(own, self.incarnation))
