"""Builders: a job, its status and its pods in the words of a test."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from meshwright.lifecycle.decide import decide
from meshwright.lifecycle.incidents import culprit_of
from meshwright.lifecycle.model import (
    Decision,
    Identity,
    Job,
    Observation,
    Offer,
    Pod,
    PodState,
    Policy,
    RoleSize,
)
from meshwright_api.status import Cause, OpenIncident, Phase, TrainingJobStatus

T0 = datetime(2026, 1, 1, tzinfo=UTC)
PLACE = Offer(plan_sha256="plan-1")


def at(seconds: float) -> datetime:
    """That many seconds into the test."""
    return T0 + timedelta(seconds=seconds)


def a_policy(workers: int = 2, **fields: Any) -> Policy:
    """A gang of workers, with these fields of its policy."""
    return Policy(roles=(RoleSize("worker", workers),), **fields)


def a_job(policy: Policy | None = None, **fields: Any) -> Job:
    """A job named `job` with that policy."""
    return Job(
        name="job", namespace="ns", uid="uid", generation=1, resource_version="1", policy=policy or a_policy(), **fields
    )


def a_pod(index: int = 0, incarnation: int = 1, state: PodState = PodState.RUNNING, **fields: Any) -> Pod:
    """A pod of the role `worker`, bound to a node of its own."""
    defaults: dict[str, Any] = {
        "name": f"job-worker-{index}-{incarnation}",
        "uid": f"pod-{index}-{incarnation}",
        "node": f"node-{index}",
        "created_at": T0,
    }
    return Pod(identity=Identity("worker", index, incarnation), state=state, **(defaults | fields))


def failed(pod: Pod, code: int = 1, when: float = 0, reason: str = "Error", **fields: Any) -> Pod:
    """The pod, ended with that exit code."""
    return replace(pod, state=PodState.FAILED, exit_code=code, finished_at=at(when), reason=reason, **fields)


def succeeded(pod: Pod, when: float = 0, **fields: Any) -> Pod:
    """The pod, ended with exit code 0."""
    return replace(pod, state=PodState.SUCCEEDED, exit_code=0, finished_at=at(when), reason="Completed", **fields)


def running_status(attempt: int = 1, **fields: Any) -> TrainingJobStatus:
    """The status of a job whose gang runs."""
    defaults: dict[str, Any] = {
        "phase": Phase.RUNNING,
        "observed_generation": 1,
        "attempt": attempt,
        "planned": attempt,
        "launched": attempt,
        "incarnation": attempt,
        "plan_sha256": "plan-1",
        "start_time": T0,
        "admitted_time": T0,
        "active_since": T0,
    }
    return TrainingJobStatus(**(defaults | fields))


@dataclass(frozen=True)
class Scene:
    """One job in one moment; `decide` it, or let time and events pass."""

    o: Observation

    def but(self, **fields: Any) -> Scene:
        """The same scene with these parts of the observation changed."""
        return Scene(replace(self.o, **fields))

    def after(self, seconds: float) -> Scene:
        """The same scene, that much later."""
        return self.but(now=self.o.now + timedelta(seconds=seconds))

    def decide(self) -> Decision:
        """What the job needs in this scene."""
        return decide(self.o)

    def status(self) -> TrainingJobStatus:
        """The status that this scene writes; the test fails if it writes none."""
        decision = self.decide()
        assert decision.status is not None, f"no status written: {decision}"
        return decision.status

    def then(self) -> Scene:
        """The scene after its status write."""
        return self.but(status=self.status())


def a_running_gang(*pods: Pod, policy: Policy | None = None, now: float = 100, **status: Any) -> Scene:
    """A gang of two that runs, with these of its pods in another state."""
    gang = {pod.identity: pod for pod in (a_pod(0), a_pod(1))} | {pod.identity: pod for pod in pods}
    observation = Observation(
        now=at(now),
        job=a_job(policy),
        status=running_status(**status),
        pods=tuple(gang.values()),
        plan_stored="plan-1",
        undisturbed_since=T0,
    )
    return Scene(observation)


def an_open_incident(
    trigger: Cause = Cause.EXIT_CODE,
    evidence: Pod | None = None,
    *pods: Pod,
    policy: Policy | None = None,
    now: float = 100,
    **status: Any,
) -> Scene:
    """A gang of two whose attempt 1 ended a second ago; these pods are known, from a fresh list."""
    evidence = evidence or failed(a_pod(0), when=90)
    fields: dict[str, Any] = {
        "phase": Phase.RESTARTING,
        "attempt": 2,
        "planned": 1,
        "launched": 1,
        "incarnation": 1,
        "incident": OpenIncident(attempt=1, opened_at=at(now - 1), trigger=trigger, evidence=culprit_of(evidence)),
    }
    scene = a_running_gang(policy=policy, now=now, **(fields | status))
    return scene.but(pods=pods, pods_confirmed=True)


def a_new_job(policy: Policy | None = None, offer: Offer | None = PLACE) -> Scene:
    """A job that was just made."""
    return Scene(Observation(now=T0, job=a_job(policy), status=TrainingJobStatus(), offer=offer, undisturbed_since=T0))
