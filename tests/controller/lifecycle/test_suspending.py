"""Suspending and resuming."""

from __future__ import annotations

import pytest

from meshwright.lifecycle.conditions import find, holds
from meshwright.lifecycle.model import Offer, PodState
from meshwright_api import names
from meshwright_api.status import Phase
from tests.controller.lifecycle.gangs import a_pod, a_policy, a_running_gang
from tests.controller.lifecycle.life import Life, a_life, a_running_life

SUSPENDED = a_policy(suspend=True)


def suspended(life: Life) -> Life:
    return life.change(suspend=True).settle().stops_end().settle()


def test_suspended_only_when_no_pods_remain_and_the_phase_stays_meanwhile() -> None:
    life = a_running_life()
    life.change(suspend=True).settle()
    assert life.phase is Phase.RUNNING
    assert holds(life.status, names.SUSPENDING)
    assert all(pod.stopping for pod in life.pods.values())
    life.later(30).settle()
    assert life.phase is Phase.RUNNING
    life.pods.pop(life.pod(0).uid)
    assert life.settle().phase is Phase.RUNNING, "one pod remains"
    life.stops_end().settle()
    assert (life.phase, life.pods) == (Phase.SUSPENDED, {})
    assert holds(life.status, names.SUSPENDED)
    assert not holds(life.status, names.SUSPENDING)
    assert not holds(life.status, names.RUNNING)
    assert (life.status.plan_sha256, life.status.admitted_time, life.status.ready) == ("", None, "0/2")


def test_the_intent_is_durable_before_the_first_pod_is_stopped() -> None:
    decision = a_running_gang(policy=SUSPENDED).decide()
    assert decision.status is not None
    assert holds(decision.status, names.SUSPENDING)
    assert not decision.actions


def test_a_stopped_pod_gets_its_whole_grace_period() -> None:
    life = a_running_life()
    life.change(suspend=True, roles=(life.policy.roles[0].__class__("worker", 2, 300),)).settle()
    assert {action.grace_seconds for action in life.deleted} == {300}


def test_that_no_pod_remains_is_read_afresh() -> None:
    scene = a_running_gang(policy=SUSPENDED).then().but(pods=())
    assert scene.decide().confirm_pods
    assert scene.but(pods_confirmed=True).status().phase is Phase.SUSPENDED
    unseen = scene.but(pods_confirmed=True, pods=(a_pod(1),))
    assert [action.uid for action in unseen.decide().actions] == ["pod-1-1"]  # type: ignore[union-attr]


def test_a_resumed_job_runs_again_under_new_numbers_and_free_of_charge() -> None:
    life = suspended(a_running_life())
    life.later(7200).change(suspend=False).settle()
    assert (life.status.attempt, life.status.incarnation) == (2, 2)
    assert not holds(life.status, names.SUSPENDED)
    assert find(life.status, names.SUSPENDED).reason == names.REASON_RESUMED  # type: ignore[union-attr]
    assert life.start().settle().phase is Phase.RUNNING
    assert (life.status.restarts, life.status.incidents, life.status.charged_restarts) == (0, (), ())


def test_the_phase_of_a_resumed_job_is_what_it_does() -> None:
    """K62: no Suspended nor Created while it runs."""
    life = suspended(a_running_life())
    life.offer = Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message="needs 2 nodes; 1 is free")
    life.change(suspend=False).settle()
    assert (life.phase, holds(life.status, names.SUSPENDED)) == (Phase.PENDING, False)
    life.offer = None
    life.settle().start().settle()
    assert (life.phase, holds(life.status, names.RUNNING)) == (Phase.RUNNING, True)
    assert not holds(life.status, names.SUSPENDED)
    assert not holds(life.status, names.SUSPENDING)


def test_a_suspension_that_is_taken_back_too_late_is_carried_through_and_then_resumed() -> None:
    life = a_running_life()
    life.change(suspend=True).settle().change(suspend=False).settle()
    assert life.phase is Phase.RUNNING
    assert life.status.attempt == 1
    life.stops_end().settle().start().settle()
    assert (life.phase, life.status.attempt) == (Phase.RUNNING, 2)
    assert Phase.SUSPENDED in life.phases()
    assert life.status.restarts == 0


def test_a_job_that_is_made_suspended_starts_nothing() -> None:
    life = a_life(suspend=True).settle()
    assert (life.phase, life.created, life.status.attempt) == (Phase.SUSPENDED, [], 0)
    assert life.change(suspend=False).settle().start().settle().phase is Phase.RUNNING
    assert life.status.attempt == 1


@pytest.mark.parametrize("state", [PodState.WAITING, PodState.FAILED, PodState.SUCCEEDED])
def test_pods_in_every_state_are_removed(state: PodState) -> None:
    life = a_running_life(workers=3)
    life.succeed(0).settle()
    life.becomes(1, state=state)
    suspended(life)
    assert (life.phase, life.pods) == (Phase.SUSPENDED, {})


def test_an_open_incident_is_judged_before_the_job_is_suspended() -> None:
    life = a_running_life()
    life.fail(0).step()
    life.change(suspend=True).settle().stops_end().settle()
    assert (life.phase, len(life.status.charged_restarts)) == (Phase.SUSPENDED, 1)
    assert life.pods == {}
    life.change(suspend=False).settle()
    assert (life.status.attempt, life.status.incarnation) == (2, 2), "the incident has numbered the attempt already"


def test_success_that_comes_while_stopping_counts() -> None:
    life = a_running_life()
    life.change(suspend=True).step()
    life.succeed(0).succeed(1).settle()
    assert life.phase is Phase.SUCCEEDED
    assert not holds(life.status, names.SUSPENDING)


def test_a_waiting_job_is_suspended_at_once() -> None:
    life = a_life()
    life.offer = Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message="needs 2 nodes; 1 is free")
    life.settle().change(suspend=True).settle()
    assert life.phase is Phase.SUSPENDED


def test_pods_that_a_deposed_leader_creates_late_are_removed() -> None:
    life = suspended(a_running_life())
    late = a_pod(0, 1)
    life.pods[late.uid] = late
    life.settle()
    assert life.pods[late.uid].stopping
    life.stops_end().settle()
    assert (life.phase, life.pods) == (Phase.SUSPENDED, {})


def test_what_has_succeeded_is_forgotten_with_the_incarnation() -> None:
    life = a_running_life()
    life.succeed(0).settle()
    assert life.status.succeeded
    suspended(life)
    assert life.status.succeeded == ()
    life.change(suspend=False).settle()
    assert len(life.pods) == 2


def test_edits_of_a_suspended_job_are_acknowledged_once() -> None:
    life = a_life(suspend=True).settle()
    before = len(life.written)
    life.change(max_restarts=3).settle().later(60).settle()
    assert life.status.observed_generation == 2
    assert len(life.written) == before + 1
