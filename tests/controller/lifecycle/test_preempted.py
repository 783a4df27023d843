"""A gang that gives its places to another: asked to stop with all its time, back in the queue, free of charge."""

from __future__ import annotations

from meshwright.lifecycle.conditions import find
from meshwright.lifecycle.decide import decide
from meshwright.lifecycle.model import DeletePod, Offer, Policy, RoleSize
from meshwright_api import names
from meshwright_api.status import Cause, Phase
from tests.controller.lifecycle.gangs import a_job, a_pod, a_running_gang, an_open_incident, failed
from tests.controller.lifecycle.life import a_running_life

NO_ROOM = Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message="needs 2 nodes; 0 are free")
SLOW = Policy(roles=(RoleSize("worker", 2, grace_seconds=600),))


def test_it_goes_back_to_the_queue_and_resumes_later() -> None:
    life = a_running_life()
    life.preempted = True
    life.settle()
    assert life.phases()[-1] is Phase.RESTARTING
    assert {pod.stopping for pod in life.pods.values()} == {True}
    life.stops_end().preempted = False
    life.offer = NO_ROOM
    life.settle()
    assert life.phase is Phase.PENDING
    assert (life.status.plan_sha256, life.status.active_since) == ("", None)
    life.later(3600).offer = None
    life.settle().start().settle()
    assert (life.phase, life.status.attempt, life.status.incarnation) == (Phase.RUNNING, 2, 2)
    assert Phase.FAILED not in life.phases()


def test_it_costs_nothing_and_says_what_happened() -> None:
    life = a_running_life()
    life.preempted = True
    life.settle().stops_end().preempted = False
    life.offer = NO_ROOM
    life.settle()
    incident = life.last
    assert (incident.cause, incident.trigger, incident.charged) == (Cause.PREEMPTED, Cause.PREEMPTED, False)
    assert (life.status.charged_restarts, len(life.status.disruptions)) == ((), 1)
    assert incident.culprit.node == "", "no node is to blame"


def test_it_is_pending_as_soon_as_it_is_judged_so_that_its_places_are_free() -> None:
    life = a_running_life()
    life.preempted = True
    life.settle().stops_end()
    life.step()
    condition = find(life.status, names.SCHEDULED)
    assert (life.phase, life.status.reason) == (Phase.PENDING, names.REASON_PREEMPTED)
    assert condition is not None
    assert "higher priority" in condition.message


def test_its_pods_get_the_time_for_a_checkpoint_that_their_template_asks_for() -> None:
    scene = an_open_incident(Cause.PREEMPTED, a_pod(0), a_pod(0), a_pod(1)).but(job=a_job(SLOW))
    deletions = [action for action in scene.decide().actions if isinstance(action, DeletePod)]
    assert [action.grace_seconds for action in deletions] == [600, 600]
    scene = an_open_incident(Cause.POD_LOST, a_pod(0), a_pod(0), a_pod(1)).but(job=a_job(SLOW))
    assert {action.grace_seconds for action in scene.decide().actions if isinstance(action, DeletePod)} == {30}


def test_a_gang_that_has_failed_by_itself_is_judged_for_that() -> None:
    scene = a_running_gang(failed(a_pod(0)), a_pod(1)).but(preempted=True)
    incident = scene.status().incident
    assert incident is not None
    assert incident.trigger is Cause.EXIT_CODE


def test_how_its_pods_end_after_it_was_told_to_stop_is_not_charged() -> None:
    scene = an_open_incident(Cause.PREEMPTED, a_pod(0), failed(a_pod(0)), failed(a_pod(1), code=137)).but(
        pods_confirmed=True
    )
    status = scene.status()
    assert status.incidents[-1].cause is Cause.PREEMPTED
    assert (status.phase, status.charged_restarts) == (Phase.PENDING, ())


def test_a_gang_that_restarts_gives_its_places_up_without_patience() -> None:
    life = a_running_life(bind_deadline_seconds=60)
    life.fail(0).settle().stops_end()
    life.preempted, life.offer = True, NO_ROOM
    life.settle()
    assert (life.phase, life.status.plan_sha256) == (Phase.PENDING, "")
    assert life.last.cause is Cause.EXIT_CODE


def test_nobody_takes_places_from_a_gang_that_is_being_suspended_anyway() -> None:
    life = a_running_life()
    life.change(suspend=True).step()
    life.preempted = True
    life.settle().stops_end().settle()
    assert (life.phase, life.status.incidents) == (Phase.SUSPENDED, ())


def test_disruptions_are_bounded_so_that_a_job_is_not_preempted_for_ever() -> None:
    life = a_running_life(max_disruptions=1)
    for _ in range(2):
        life.preempted = True
        life.settle().stops_end().preempted = False
        life.settle().start().settle()
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_MAX_DISRUPTIONS)
    assert decide(life.observe()).status is None
