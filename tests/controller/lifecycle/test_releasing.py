"""ComputeDomains outlive every pod of their job, whatever ends it."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.lifecycle.decide import decide
from meshwright.lifecycle.model import Decision, DeletePod, Job, Observation, Pod, ReleaseDomains
from meshwright_api.status import Phase, TrainingJobStatus
from tests.controller.lifecycle.gangs import a_job, a_pod, a_policy, at, failed, running_status, succeeded

RUNNING = (a_pod(0), a_pod(1))
STOPPING = tuple(a_pod(i, stop_requested_at=at(0)) for i in (0, 1))
ENDED = (succeeded(a_pod(0)), failed(a_pod(1)))


def decided(job: Job, status: TrainingJobStatus, *pods: Pod, **fields: Any) -> Decision:
    return decide(Observation(now=at(60), job=job, status=status, pods=pods, **fields))


def deleted(**fields: Any) -> Job:
    return a_job(deleting=True, **{"holds_domains": True, **fields})


def test_a_job_without_domains_is_left_to_the_garbage_collector() -> None:
    decision = decided(deleted(holds_domains=False), running_status(), *RUNNING)
    assert (decision.actions, decision.confirm_pods) == ((), False)


def test_pods_of_a_deleted_job_are_stopped_first_each_with_its_grace() -> None:
    decision = decided(deleted(), running_status(), *RUNNING, pods_confirmed=True)
    assert decision.actions == tuple(DeletePod(pod.name, pod.uid, 30) for pod in RUNNING)


def test_so_are_those_of_a_job_whose_spec_can_no_longer_be_read() -> None:
    job = Job("job", "ns", "uid", 1, "1", policy=None, problem="x", deleting=True, holds_domains=True)
    assert len(decided(job, running_status(), *RUNNING).actions) == 2


@pytest.mark.parametrize("pods", [STOPPING, (ENDED[0], STOPPING[1])], ids=["both stop", "one stops"])
def test_nothing_is_released_while_a_pod_stops(pods: tuple[Pod, ...]) -> None:
    decision = decided(deleted(), running_status(), *pods, pods_confirmed=True)
    assert (decision.actions, decision.status) == ((), None)


@pytest.mark.parametrize("pods", [(), ENDED], ids=["gone", "ended"])
def test_what_no_pod_uses_is_released_after_a_fresh_look(pods: tuple[Pod, ...]) -> None:
    """The cache may not know yet of a pod that was just created."""
    assert decided(deleted(), running_status(), *pods).confirm_pods
    decision = decided(deleted(), running_status(), *pods, pods_confirmed=True)
    assert decision.actions == (ReleaseDomains("uid"),)
    assert decided(deleted(), running_status(), *RUNNING, pods_confirmed=True).actions != decision.actions


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_a_job_that_is_over_gives_them_back_when_its_last_pod_has_ended(phase: Phase) -> None:
    job, status = a_job(holds_domains=True), running_status(phase=phase, completion_time=at(0))
    kept = a_job(a_policy(clean_pods="None"), holds_domains=True)
    assert ReleaseDomains("uid") not in decided(job, status, *RUNNING, pods_confirmed=True).actions
    assert ReleaseDomains("uid") not in decided(kept, status, *RUNNING, pods_confirmed=True).actions
    assert decided(kept, status, *ENDED).confirm_pods
    assert decided(kept, status, *ENDED, pods_confirmed=True).actions == (ReleaseDomains("uid"),)
    assert decided(a_job(), status, *ENDED, pods_confirmed=True).actions == ()


def test_so_does_a_suspended_one() -> None:
    job = a_job(a_policy(suspend=True), holds_domains=True)
    status = running_status(phase=Phase.SUSPENDED, plan_sha256="")
    assert decided(job, status).confirm_pods
    assert decided(job, status, pods_confirmed=True).actions == (ReleaseDomains("uid"),)


def test_one_that_runs_or_restarts_keeps_them() -> None:
    job = a_job(holds_domains=True)
    for status in (running_status(), running_status(phase=Phase.RESTARTING), running_status(phase=Phase.PENDING)):
        decision = decided(job, status, *RUNNING, pods_confirmed=True)
        assert ReleaseDomains("uid") not in decision.actions


def test_pods_on_a_lost_node_hold_them_unless_the_policy_gives_those_up() -> None:
    lost = {"lost_nodes": frozenset({"node-0", "node-1"}), "pods_confirmed": True}
    assert decided(deleted(), running_status(), *STOPPING, **lost).actions == ()
    forced = deleted(policy=a_policy(force_delete_on_lost_node=True))
    assert {action.grace_seconds for action in decided(forced, running_status(), *STOPPING, **lost).actions} == {0}  # type: ignore[union-attr]
