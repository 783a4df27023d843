"""Success, failure, what is final, and what remains to do afterwards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from meshwright.lifecycle.conditions import find, holds
from meshwright.lifecycle.model import DeleteJob, DeletePod, PodState, RoleSize
from meshwright_api import names
from meshwright_api.status import Phase
from tests.controller.lifecycle.gangs import (
    a_job,
    a_new_job,
    a_pod,
    a_policy,
    a_running_gang,
    an_open_incident,
    at,
    failed,
    succeeded,
)
from tests.controller.lifecycle.life import Life, a_life, a_running_life

# --- success -------------------------------------------------------------------------------------------------------


def a_mixed_life(success: Literal["AllWorkers", "Rank0"], *roles: RoleSize) -> Life:
    life = Life(replace(a_policy(), roles=roles, success=success))
    return life.settle().start().settle()


def test_every_pod_of_every_role_must_succeed() -> None:
    """A master that still saves is not stopped because its workers are done."""
    life = a_mixed_life("AllWorkers", RoleSize("master", 1), RoleSize("worker", 2))
    life.later(60).succeed(0, "worker").succeed(1, "worker").settle()
    assert life.phases()[-1] is Phase.RUNNING
    assert not life.pod(0, "master").stopping
    life.later(60).succeed(0, "master").settle()
    assert life.phases()[-1] is Phase.SUCCEEDED


def test_a_role_worker_of_size_0_means_none() -> None:
    life = a_mixed_life("AllWorkers", RoleSize("chief", 1), RoleSize("worker", 0))
    assert [identity.role for identity in life.created] == ["chief"]
    assert life.later(60).succeed(0, "chief").settle().phase is Phase.SUCCEEDED


def test_rank_0_decides_if_the_spec_says_so() -> None:
    life = a_mixed_life("Rank0", RoleSize("chief", 1), RoleSize("worker", 2))
    life.later(60).succeed(0, "worker").succeed(1, "worker").settle()
    assert life.phases()[-1] is Phase.RUNNING
    life.later(60).succeed(0, "chief").settle()
    assert life.phases()[-1] is Phase.SUCCEEDED


def test_rank_0_that_succeeds_while_another_fails_is_success() -> None:
    life = a_mixed_life("Rank0", RoleSize("worker", 2))
    life.later(60).succeed(0).fail(1).settle()
    assert (life.phase, life.status.incidents) == (Phase.SUCCEEDED, ())


def test_a_pod_that_fails_after_another_has_succeeded_restarts_the_whole_gang() -> None:
    life = a_running_life()
    life.succeed(0).settle().later(5).fail(1).restart()
    assert (life.phase, life.status.incarnation, life.status.succeeded) == (Phase.RUNNING, 2, ())
    assert life.pod(0).state is PodState.RUNNING


@pytest.mark.parametrize("ended_at", [99, 100, 130])
def test_exit_code_0_after_a_stop_is_no_success(ended_at: int) -> None:
    """A script that saves and exits with 0 on SIGTERM has not finished its training."""
    stopped = [succeeded(a_pod(i, stop_requested_at=at(99)), ended_at) for i in (0, 1)]
    decision = a_running_gang(*stopped).decide()
    assert decision.status is not None
    assert decision.status.phase is Phase.RESTARTING


def test_exit_code_0_just_before_a_stop_is_success() -> None:
    stopped = [succeeded(a_pod(i, stop_requested_at=at(99)), 98) for i in (0, 1)]
    assert a_running_gang(*stopped).status().phase is Phase.SUCCEEDED


def test_success_is_durable_before_the_others_end() -> None:
    life = a_running_life(workers=4)
    life.progress_due = False
    life.succeed(2).settle()
    assert [(entry.role, entry.indexes) for entry in life.status.succeeded] == [("worker", "2")]
    assert life.status.pods.succeeded == 1


def test_pods_that_succeeded_and_are_deleted_later_stay_succeeded() -> None:
    life = a_running_life()
    life.succeed(0).settle()
    del life.pods[life.pod(0).uid]
    life.settle()
    assert life.phase is Phase.RUNNING
    life.crash().settle()
    assert (life.phase, life.status.incident) == (Phase.RUNNING, None)
    assert life.later(60).succeed(1).settle().phase is Phase.SUCCEEDED
    assert life.status.succeeded[0].indexes == "0-1"
    assert len(life.created) == 2


def test_a_recorded_success_is_no_lost_pod_while_it_is_removed() -> None:
    life = a_running_life()
    life.succeed(0).settle()
    life.becomes(0, stop_requested_at=life.now).settle()
    assert life.status.incident is None


def test_a_pod_that_succeeded_but_was_gone_before_anybody_saw_it_is_lost() -> None:
    life = a_running_life()
    life.succeed(0)
    del life.pods[life.pod(0).uid]
    life.restart()
    assert (life.last.cause.value, life.last.charged, life.phase) == ("PodLost", False, Phase.RUNNING)


def test_success_is_told() -> None:
    life = a_running_life()
    life.succeed(0).succeed(1).settle()
    condition = find(life.status, names.SUCCEEDED)
    assert condition is not None
    assert "2 of 2 pods ended with exit code 0" in condition.message
    assert not holds(life.status, names.RUNNING)
    assert (life.status.completion_time, life.status.active_since) == (life.now, None)
    assert life.status.active_seconds == 600


# --- what is final -------------------------------------------------------------------------------------------------


def finished(phase: Phase, **policy: Any) -> Life:
    life = a_running_life(max_restarts=0, **policy)
    if phase is Phase.SUCCEEDED:
        life.succeed(0).succeed(1).settle()
    else:
        life.fail(0).settle().stops_end().settle()
    assert life.phase is phase
    return life


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_terminal_is_terminal_whatever_happens(phase: Phase) -> None:
    """K48."""
    life = finished(phase)
    status, creates = life.status, list(life.created)
    late = a_pod(0, 1, state=PodState.RUNNING, uid="late")
    for happens in (
        lambda: life.pods.clear(),
        lambda: life.pods.update({late.uid: late}),
        lambda: life.pods.update({late.uid: failed(late)}),
        lambda: life.lose("node-0").lose("node-1"),
        lambda: life.later(10_000_000),
        lambda: life.crash(),
        lambda: setattr(life, "plan_stored", ""),
    ):
        happens()
        life.settle()
        assert (life.status, life.created, life.job_deleted) == (status, creates, False)


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_suspending_or_resuming_a_finished_job_changes_nothing_but_the_generation_that_was_seen(phase: Phase) -> None:
    life = finished(phase)
    before, writes = life.status, len(life.written)
    life.change(suspend=True).settle()
    assert life.status == before.model_copy(update={"observed_generation": 2})
    life.settle().later(60).settle()
    assert len(life.written) == writes + 1
    assert life.created == life.created[:2]


@pytest.mark.parametrize(
    ("clean", "left"), [("Running", {"job-worker-0-1"}), ("All", set()), ("None", {"job-worker-0-1", "job-worker-1-1"})]
)
def test_clean_pod_policy(clean: str, left: set[str]) -> None:
    life = a_running_life(success="Rank0", clean_pods=clean)
    life.succeed(0).settle().stops_end().settle()
    assert {pod.name for pod in life.pods.values()} == left


@pytest.mark.parametrize(("clean", "left"), [("Running", 0), ("All", 0), ("None", 2)])
def test_k85_a_sidecar_that_runs_on_keeps_no_room_once_the_job_is_over(clean: str, left: int) -> None:
    life = a_running_life(clean_pods=clean)
    life.succeed(0).succeed(1).becomes(0, lingers=True).becomes(1, lingers=True).settle()
    assert life.phase is Phase.SUCCEEDED
    assert all(action.grace_seconds == 30 for action in life.deleted), "as its template says"
    assert len(life.stops_end().pods) == left


def test_k85_a_sidecar_beside_a_pod_that_failed_does_not_keep_its_place_from_the_next_attempt() -> None:
    life = a_running_life()
    life.fail(0, lingers=True)
    failed_pod = life.pod(0)
    life.settle()
    assert life.pods[failed_pod.uid].stopping, "kept for who looks into it only where it holds nothing"
    life.restart()
    assert life.last.culprit.pod_uid == failed_pod.uid


def test_pods_of_other_incarnations_never_stay() -> None:
    life = finished(Phase.SUCCEEDED, clean_pods="None")
    late = a_pod(0, 7)
    life.pods[late.uid] = late
    life.settle()
    assert life.pods[late.uid].stopping


# --- time to live --------------------------------------------------------------------------------------------------


def test_a_finished_job_is_deleted_when_its_time_to_live_has_passed() -> None:
    life = finished(Phase.SUCCEEDED, ttl_seconds=3600)
    assert life.wake_after == 3600
    life.later(3599).settle()
    assert not life.job_deleted
    life.later(1).step()
    assert life.job_deleted


def test_time_to_live_is_unset_by_default() -> None:
    life = finished(Phase.SUCCEEDED).later(10_000_000).settle()
    assert not life.job_deleted
    assert life.wake_after is None


def test_a_time_to_live_that_is_set_later_counts_from_the_end() -> None:
    life = finished(Phase.FAILED).later(5000)
    life.change(ttl_seconds=3600).step()
    life.step()
    assert life.job_deleted


def test_a_running_job_has_no_time_to_live() -> None:
    life = a_running_life(ttl_seconds=0).later(100_000).settle()
    assert not life.job_deleted
    assert DeleteJob("uid") not in a_running_gang(policy=a_policy(ttl_seconds=0)).decide().actions


# --- what cannot be run --------------------------------------------------------------------------------------------

BROKEN = replace(a_job(), policy=None, problem="spec.roles[0].replicas: -1 is less than 0; 2 works")


def test_a_spec_that_cannot_be_run_is_told_once_and_nothing_is_touched() -> None:
    scene = a_new_job().but(job=BROKEN)
    status = scene.status()
    condition = find(status, names.ACCEPTED)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == (
        "False",
        names.REASON_INVALID_SPEC,
        BROKEN.problem,
    )
    assert (status.phase, status.reason, status.observed_generation) == (Phase.PENDING, names.REASON_INVALID_SPEC, 1)
    assert scene.then().decide().status is None


def test_a_running_gang_outlives_a_spec_that_became_unreadable() -> None:
    scene = a_running_gang().but(job=BROKEN)
    status = scene.status()
    assert status.phase is Phase.RUNNING
    assert not scene.decide().actions
    assert not scene.then().decide().actions


def test_a_repaired_spec_is_run() -> None:
    scene = a_new_job().but(job=BROKEN).then().but(job=replace(a_job(), generation=2))
    status = scene.status()
    assert (status.phase, status.observed_generation) == (Phase.ADMITTED, 2)
    assert holds(status, names.ACCEPTED)


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_a_finished_job_with_an_unreadable_spec_is_left_alone(phase: Phase) -> None:
    decision = a_running_gang(phase=phase).but(job=BROKEN).decide()
    assert (decision.status, decision.actions) == (None, ())


def test_a_job_that_is_being_deleted_is_left_to_the_garbage_collector() -> None:
    for scene in (a_new_job(), a_running_gang(failed(a_pod(0))), an_open_incident()):
        decision = scene.but(job=a_job(deleting=True)).decide()
        assert (decision.status, decision.actions, decision.confirm_pods) == (None, (), False)


def test_k22_pods_on_a_lost_node_do_not_hold_the_jobs_deletion_up_where_force_is_allowed() -> None:
    stuck = failed(a_pod(0, stop_requested_at=at(50)))
    for policy, forced in (
        (a_policy(), []),
        (a_policy(force_delete_on_lost_node=True), [DeletePod(stuck.name, stuck.uid, 0)]),
    ):
        scene = a_running_gang(stuck, policy=policy).but(lost_nodes=frozenset({"node-0"}))
        decision = scene.but(job=a_job(policy, deleting=True)).decide()
        assert (decision.status, list(decision.actions)) == (None, forced)


@pytest.mark.parametrize("clean", ["Running", "All", "None"])
def test_k22_pods_on_a_lost_node_go_after_the_end_too_where_force_is_allowed(clean: str) -> None:
    life = finished(Phase.FAILED, force_delete_on_lost_node=True, clean_pods=clean)
    ended = failed(a_pod(1, stop_requested_at=life.now, uid="stuck"))
    life.pods = {ended.uid: ended}
    assert life.settle().pods == {ended.uid: ended}
    assert life.lose("node-1").settle().pods == {}


# --- generations ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("life", [a_life, a_running_life])
def test_the_generation_that_was_acted_on_is_told(life: Any) -> None:
    job = life().settle().change(max_restarts=3).settle().start().settle()
    assert job.status.observed_generation == 2
    assert all(c.observed_generation <= 2 for c in job.status.conditions)


def test_a_changed_policy_counts_at_once_and_costs_one_write() -> None:
    life = a_running_life()
    before = len(life.written)
    life.change(max_restarts=0).settle()
    assert len(life.written) == before + 1
    life.fail(0).settle().stops_end().settle()
    assert life.phase is Phase.FAILED
