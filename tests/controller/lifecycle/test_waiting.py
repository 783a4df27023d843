"""Waiting for a place: what is said, and how often."""

from __future__ import annotations

from dataclasses import replace

from meshwright.lifecycle.admitting import needs_offer
from meshwright.lifecycle.conditions import find, holds
from meshwright.lifecycle.model import Offer, PodState
from meshwright_api import names
from meshwright_api.status import Cause, Phase
from tests.controller.lifecycle.gangs import a_job, a_new_job, a_pod, a_running_gang
from tests.controller.lifecycle.life import a_life, a_running_life


def no_room(free: int) -> Offer:
    return Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message=f"needs 8 nodes; {free} are free")


def test_a_waiting_job_says_what_is_missing() -> None:
    status = a_new_job(offer=no_room(3)).status()
    condition = find(status, names.SCHEDULED)
    assert condition is not None
    assert (condition.status, condition.reason, condition.message) == (
        "False",
        names.REASON_WAITING_FOR_CAPACITY,
        "needs 8 nodes; 3 are free",
    )
    assert (status.phase, status.reason, status.ready) == (Phase.PENDING, names.REASON_WAITING_FOR_CAPACITY, "0/2")
    assert (status.attempt, status.plan_sha256, status.active_since) == (0, "", None)


def test_the_same_message_is_not_written_again() -> None:
    scene = a_new_job(offer=no_room(3)).then()
    assert scene.after(3600).decide().status is None
    assert scene.decide().wake_after is None


def test_numbers_that_change_are_refreshed_but_not_at_every_change() -> None:
    scene = a_new_job(offer=no_room(3)).then().but(offer=no_room(4))
    soon = scene.but(progress_due=False).decide()
    assert (soon.status, soon.wake_after) == (None, 30)
    status = scene.status()
    assert "4 are free" in find(status, names.SCHEDULED).message  # type: ignore[union-attr]


def test_another_reason_is_told_at_once() -> None:
    quota = Offer(reason=names.REASON_QUOTA_EXCEEDED, message="the quota allows 4 GPUs")
    scene = a_new_job(offer=no_room(3)).then().but(offer=quota, progress_due=False)
    assert scene.status().reason == names.REASON_QUOTA_EXCEEDED


def test_k41_its_own_ended_pods_do_not_keep_it_out_for_ever_where_the_quota_counts_them() -> None:
    life = a_running_life()
    life.fail(0).settle().stops_end()
    full = Offer(reason=names.REASON_QUOTA_EXCEEDED, message="count/pods: 2 needed, 1 of 2 left")
    life.offer = full
    life.later(600).settle()
    assert [pod.ended for pod in life.pods.values()] == [True], "kept for who looks into it"
    life.offer = replace(full, counts_ended_pods=True)
    assert life.settle().pods == {}
    life.offer = None
    assert life.settle().start().settle().phase is Phase.RUNNING


def test_a_job_that_is_being_deleted_is_not_placed() -> None:
    assert needs_offer(a_new_job().o)
    assert not needs_offer(a_new_job().but(job=a_job(deleting=True)).o)


def test_a_queue_that_has_not_answered_is_asked_again_soon() -> None:
    decision = a_new_job(offer=None).decide()
    assert (decision.status, decision.actions, decision.wake_after) == (None, (), 1)


def test_a_lost_plan_is_replaced_only_if_a_fresh_list_shows_no_pod_of_it() -> None:
    scene = a_running_gang(phase=Phase.ADMITTED, launched=0).but(pods=(), plan_stored="", offer=Offer("plan-2"))
    assert scene.decide().confirm_pods
    assert scene.but(pods_confirmed=True).status().plan_sha256 == "plan-2"
    incident = scene.but(pods_confirmed=True, pods=(a_pod(0),)).status().incident
    assert incident is not None
    assert incident.trigger is Cause.PLAN_LOST


def test_a_place_is_taken_at_once_and_told() -> None:
    life = a_life()
    life.offer = no_room(3)
    life.settle().later(60).offer = None
    life.settle()
    assert holds(life.status, names.SCHEDULED)
    assert life.status.start_time == life.status.admitted_time == life.now


def test_the_start_time_is_the_first_admissions() -> None:
    life = a_running_life()
    first = life.status.start_time
    life.fail(0).restart()
    assert life.status.start_time == first
    assert life.status.admitted_time == life.now


def test_a_waiting_job_holds_no_place_and_lets_no_pod_run() -> None:
    """Such a pod can only be a deposed leader's, created late."""
    life = a_running_life(bind_deadline_seconds=0)
    life.offer = no_room(1)
    life.fail(0).settle().stops_end().settle()
    assert (life.phase, life.status.plan_sha256) == (Phase.PENDING, "")
    late = a_pod(1, 1, uid="late", state=PodState.RUNNING)
    life.pods[late.uid] = late
    life.settle()
    assert life.pods[late.uid].stopping


def test_such_a_pod_is_stopped_before_the_next_plan_is_committed() -> None:
    life = a_running_life(bind_deadline_seconds=0)
    life.offer = no_room(1)
    life.fail(0).settle().stops_end().settle()
    late = a_pod(1, 1, uid="late", state=PodState.RUNNING)
    life.pods[late.uid], life.offer = late, None
    life.step()
    assert (life.phase, life.pods[late.uid].stopping) == (Phase.PENDING, True)
    assert life.settle().start().settle().phase is Phase.RUNNING
