"""What the server may know of jobs: whose pods they have, and which attempt is wanted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.acting import load_plan
from meshwright.cluster.api import ApiServer
from meshwright.cluster.caches import PodCache
from meshwright.cluster.errors import ApiError
from meshwright.heartbeats.errors import NotAllowed, NotReady, UnknownJob
from meshwright.heartbeats.identity import PodIdentity
from meshwright.jobs import Jobs, KnownJob
from meshwright.lifecycle.model import Identity, Pod
from meshwright.rendering.gang import FrozenPlan


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a job's status asks of its agents."""

    attempt: int
    incarnation: int
    plan_sha256: str


class Directory:
    """Jobs and pods as the caches show them."""

    def __init__(self, api: ApiServer, jobs: Jobs, pods: PodCache) -> None:
        self._api, self._jobs, self._pods = api, jobs, pods

    def member(self, job_uid: str, who: PodIdentity) -> Pod:
        """The job's pod that a token belongs to.

        Raises:
            NotReady: the pods are not known yet.
            UnknownJob: there is no such job.
            NotAllowed: the pod is not of this job.
        """
        if not self._pods.synced:
            raise NotReady("the operator does not know all pods yet")
        known = self._known(job_uid)
        found = next((pod for pod in self._pods.gang(job_uid) if pod.uid == who.uid), None)
        # In another namespace anybody may make pods that claim to belong to this job.
        if found is None or found.name != who.name or known.metadata.namespace != who.namespace:
            raise NotAllowed(f"pod {who.namespace}/{who.name} is not of this job")
        return found

    def exists(self, job_uid: str) -> bool:
        """Whether there is such a job."""
        return self._jobs.get(job_uid) is not None

    def wanted(self, job_uid: str) -> Wanted:
        """What the status says now.

        Raises:
            UnknownJob: there is no such job.
        """
        raw = self._known(job_uid).raw.get("status")
        status: Mapping[str, Any] = raw if isinstance(raw, Mapping) else {}
        return Wanted(
            _whole(status.get("attempt")), _whole(status.get("incarnation")), str(status.get("planSHA256", ""))
        )

    def rank0_address(self, job_uid: str) -> str:
        """Address of the pod with rank 0; empty if it is not known."""
        frozen = self._known(job_uid).memory.frozen
        if frozen is None:
            return ""
        return self._pods.address(job_uid, Identity(frozen.launch_plan.roles[0].name, 0, frozen.incarnation))

    def heartbeat_timeout(self, job_uid: str) -> float | None:
        """Seconds of silence that count as a fault; None if the job's plan asks for no heartbeats, or is not known."""
        known = self._jobs.get(job_uid)
        frozen = known.memory.frozen if known else None
        heartbeat = frozen.launch_plan.heartbeat if frozen else None
        return heartbeat.timeout_seconds if heartbeat else None

    async def plan_text(self, job_uid: str, attempt: int) -> str:
        """The launch plan of an attempt, as its pods read it.

        Raises:
            UnknownJob: there is no such job, or that attempt is not its newest.
            NotReady: the API server does not answer.
        """
        known, wanted = self._known(job_uid), self.wanted(job_uid)
        frozen: FrozenPlan | None = known.memory.frozen
        if frozen is None or frozen.sha256 != wanted.plan_sha256:
            try:
                frozen = await load_plan(self._api, known, wanted.incarnation, wanted.plan_sha256)
            except ApiError as error:
                raise NotReady("the API server does not answer") from error
        if frozen is None or frozen.attempt != attempt:
            raise UnknownJob(f"there is no committed plan of attempt {attempt}; the newest attempt is {wanted.attempt}")
        return frozen.plan_text

    def _known(self, job_uid: str) -> KnownJob:
        known = self._jobs.get(job_uid)
        if known is None:
            raise UnknownJob("there is no such job")
        return known


def _whole(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0
