"""Clocks that a job runs against."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.lifecycle.avoid import nodes_to_avoid
from meshwright.lifecycle.model import Offer, PodState
from meshwright_api import names
from meshwright_api.status import Cause, Phase
from tests.controller.lifecycle.gangs import T0, a_pod, a_policy, a_running_gang, an_open_incident, at, failed
from tests.controller.lifecycle.life import Life, a_life, a_running_life

NO_ROOM = Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message="needs 2 nodes; 1 is free")

# --- start-up ------------------------------------------------------------------------------------------------------


def test_a_gang_that_does_not_run_in_time_is_an_incident_that_names_what_it_waits_for() -> None:
    """K16: a broken image counts and ends with a clear reason."""
    life = a_life(startup_deadline_seconds=300, max_restarts=2).settle()
    for _ in range(3):
        life.start(0).becomes(1, waiting="ImagePullBackOff", last_words="manifest unknown").settle()
        assert life.wake_after == 300
        life.later(299).settle()
        assert life.status.incident is None
        life.later(1).settle().stops_end().settle()
    assert (life.last.cause, life.last.charged) == (Cause.STARTUP_DEADLINE, True)
    assert (life.last.culprit.reason, life.last.culprit.last_words) == ("ImagePullBackOff", "manifest unknown")
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_MAX_RESTARTS)


def test_the_start_up_deadline_counts_from_the_plan_and_ends_when_the_gang_runs() -> None:
    life = a_life(startup_deadline_seconds=300)
    life.offer = NO_ROOM
    life.settle().later(3600).offer = None
    life.settle().later(200).start().settle()
    assert life.phase is Phase.RUNNING
    life.later(86400).settle()
    assert life.phase is Phase.RUNNING
    assert life.wake_after is None


@pytest.mark.parametrize("index", [0, 1])
def test_the_start_up_deadline_is_over_for_good_once_the_gang_has_run(index: int) -> None:
    """Also when a pod that has succeeded was removed, so that the gang is never whole again."""
    life = a_running_life(startup_deadline_seconds=900)
    life.succeed(index).settle()
    del life.pods[life.pod(index).uid]
    life.later(3600).settle()
    assert life.phase is Phase.RUNNING
    assert life.wake_after is None, "a clock that has run out would wake the job for ever"


def test_a_pod_of_a_gang_that_has_run_cannot_miss_the_start_up_deadline() -> None:
    """Whatever a kubelet that was restarted tells of it."""
    scene = a_running_gang(a_pod(1, state=PodState.WAITING), now=100_000)
    assert (scene.decide().status, scene.decide().wake_after) == (None, None)


def test_pods_that_cannot_even_be_created_miss_the_deadline_too() -> None:
    life = a_life(startup_deadline_seconds=300)
    life.refusal = "exceeded quota: gpus"
    for _ in range(4):
        life.step()
    life.later(300).step()
    assert life.status.incident is not None
    evidence = life.status.incident.evidence
    assert (life.status.incident.trigger, evidence.role, evidence.index) == (Cause.STARTUP_DEADLINE, "worker", 0)
    assert (evidence.reason, evidence.last_words) == (names.REASON_POD_REFUSED, "exceeded quota: gpus")


def test_a_gang_that_runs_in_the_very_second_of_the_deadline_has_made_it() -> None:
    life = a_life(startup_deadline_seconds=300).settle()
    assert life.later(300).start().settle().phase is Phase.RUNNING


# --- binding -------------------------------------------------------------------------------------------------------


def unbound(index: int, created: float) -> object:
    return a_pod(index, state=PodState.WAITING, node="", created_at=at(created))


def test_pods_that_are_not_bound_in_time_send_the_gang_back_to_the_queue_free_of_charge() -> None:
    life = a_life(bind_deadline_seconds=60).settle()
    for pod in tuple(life.pods.values()):
        life.pods[pod.uid] = replace(pod, node="", pinned=pod.node)
    life.later(59).settle()
    assert life.status.incident is None
    assert life.wake_after == 1
    life.later(1).settle().stops_end().offer = NO_ROOM
    life.later(1).settle()
    assert (life.last.cause, life.last.charged, life.last.culprit.pod) == (
        Cause.BIND_DEADLINE,
        False,
        "job-worker-0-1",
    )
    assert nodes_to_avoid(life.status, life.now) == {"node-0"}
    life.later(60).settle()
    assert life.phase is Phase.PENDING


def test_k28_the_node_of_the_pod_that_the_scheduler_refuses_is_avoided_not_that_of_one_it_has_not_tried() -> None:
    life = a_life(bind_deadline_seconds=60).settle()
    for index, waiting in ((0, ""), (1, "Unschedulable")):
        life.becomes(index, node="", pinned=f"node-{index}", waiting=waiting, last_words="didn't have free ports")
    life.later(60).settle().stops_end().settle()
    assert (life.last.cause, life.last.culprit.last_words) == (Cause.BIND_DEADLINE, "didn't have free ports")
    assert nodes_to_avoid(life.status, life.now) == {"node-1"}


def test_k28_a_node_on_which_a_pod_does_not_come_up_is_avoided_too() -> None:
    life = a_life(startup_deadline_seconds=300).settle()
    life.start(0).becomes(1, waiting="ContainerCreating").later(300).settle().stops_end().settle()
    assert (life.last.cause, nodes_to_avoid(life.status, life.now)) == (Cause.STARTUP_DEADLINE, {"node-1"})


@pytest.mark.parametrize(
    ("undisturbed_since", "now", "overdue"),
    [(None, 1000, False), (90, 149, False), (90, 150, True), (0, 69, False), (0, 70, True)],
)
def test_the_bind_deadline_does_not_count_while_older_pods_of_ours_hold_the_places(
    undisturbed_since: float | None, now: float, overdue: bool
) -> None:
    scene = a_running_gang(phase=Phase.STARTING, now=now).but(
        pods=(unbound(0, 10), unbound(1, 10)),
        undisturbed_since=None if undisturbed_since is None else at(undisturbed_since),
    )
    decision = scene.decide()
    assert (decision.status is not None and decision.status.phase is Phase.RESTARTING) is overdue


def test_bound_pods_that_wait_for_their_image_have_until_the_start_up_deadline() -> None:
    pods = tuple(a_pod(i, state=PodState.WAITING) for i in (0, 1))
    scene = a_running_gang(phase=Phase.STARTING, now=600).but(pods=pods).then()
    assert scene.decide().status is None
    assert scene.decide().wake_after == 1200


# --- keeping places ------------------------------------------------------------------------------------------------


def test_a_job_that_restarts_keeps_its_places_until_the_bind_deadline() -> None:
    life = a_running_life(bind_deadline_seconds=60)
    life.offer = NO_ROOM
    life.fail(0).settle().stops_end().settle()
    assert (life.phase, life.status.plan_sha256) == (Phase.RESTARTING, "plan-1-1")
    assert life.wake_after == 60
    life.later(59).settle()
    assert life.status.plan_sha256 == "plan-1-1"
    life.later(1).settle()
    assert (life.phase, life.status.plan_sha256) == (Phase.PENDING, "")


def test_which_does_not_count_while_its_own_pods_still_stop() -> None:
    life = a_running_life(bind_deadline_seconds=60, evidence_seconds=15)
    life.offer = NO_ROOM
    life.fail(0).settle().later(15).settle().later(600).settle()
    assert life.phases()[-1] is Phase.RESTARTING, "they hold the places that it waits for"
    life.stops_end().settle()
    assert life.phases()[-1] is Phase.PENDING


def test_but_a_pod_that_a_lost_node_will_never_report_is_not_waited_for() -> None:
    life = a_running_life(bind_deadline_seconds=60, evidence_seconds=15)
    life.offer = NO_ROOM
    life.lose("node-1").settle().stops_end().later(15).settle().later(60).settle()
    assert life.phase is Phase.PENDING


def test_room_that_comes_in_time_is_taken_at_once() -> None:
    life = a_running_life()
    life.offer = NO_ROOM
    life.fail(0).settle().stops_end().settle().later(10).offer = None
    assert life.settle().start().settle().phase is Phase.RUNNING


# --- activity ------------------------------------------------------------------------------------------------------


def test_an_active_deadline_fails_the_job_and_stops_its_pods() -> None:
    life = a_running_life(active_deadline_seconds=3600)
    assert life.wake_after == 3000
    life.later(2999).settle()
    assert life.phase is Phase.RUNNING
    life.later(1).settle()
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_ACTIVE_DEADLINE)
    assert all(pod.stopping for pod in life.pods.values())
    assert life.status.completion_time == life.now


def test_queueing_does_not_count() -> None:
    life = a_life(active_deadline_seconds=3600)
    life.offer = NO_ROOM
    life.settle().later(100_000).settle()
    assert (life.phase, life.status.active_since) == (Phase.PENDING, None)
    life.offer = None
    life.settle().start().settle().later(3599).settle()
    assert life.phase is Phase.RUNNING


def test_going_back_to_the_queue_stops_the_clock_and_what_it_has_counted_stays() -> None:
    life = a_running_life(active_deadline_seconds=3600)
    life.offer = NO_ROOM
    life.fail(0).settle().stops_end().settle().later(60).settle()
    assert life.phase is Phase.PENDING
    assert (life.status.active_since, life.status.active_seconds) == (None, 660)
    life.later(100_000).offer = None
    life.settle().start().settle()
    assert life.wake_after == 3600 - 660


def test_suspension_does_not_count() -> None:
    life: Life = a_running_life(active_deadline_seconds=3600)
    life.change(suspend=True).settle().later(30).stops_end().settle()
    assert life.status.active_seconds == 630
    life.later(100_000).settle()
    assert life.phases()[-1] is Phase.SUSPENDED
    life.change(suspend=False).settle().start().settle().later(3600 - 630 - 1).settle()
    assert life.phase is Phase.RUNNING
    assert life.later(1).settle().status.reason == names.REASON_ACTIVE_DEADLINE


def test_restarting_counts() -> None:
    life = a_running_life(active_deadline_seconds=700)
    life.fail(0).settle().stops_end()
    life.later(100).step()
    assert life.status.active_since == T0
    life.settle()
    assert life.phase is Phase.FAILED


def test_an_incident_that_is_open_at_the_deadline_is_judged_first_and_not_lost() -> None:
    policy = a_policy(active_deadline_seconds=60)
    scene = an_open_incident(Cause.EXIT_CODE, None, failed(a_pod(0), when=90), policy=policy)
    status = scene.status()
    assert (status.phase, len(status.incidents), len(status.charged_restarts)) == (Phase.RESTARTING, 1, 1)
    assert scene.then().status().reason == names.REASON_ACTIVE_DEADLINE


def test_success_in_the_second_of_the_deadline_is_success() -> None:
    life = a_running_life(active_deadline_seconds=3600)
    assert life.later(3000).succeed(0).succeed(1).settle().phase is Phase.SUCCEEDED


def test_a_deadline_that_is_set_later_counts_what_has_passed() -> None:
    life = a_running_life()
    life.change(active_deadline_seconds=500).settle()
    assert life.status.reason == names.REASON_ACTIVE_DEADLINE
