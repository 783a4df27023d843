"""Whole lives: what is written, how often, and in which order."""

from __future__ import annotations

import pytest

from meshwright.lifecycle.model import Offer, PodState
from meshwright_api import names
from meshwright_api.status import Phase
from tests.controller.lifecycle.life import a_life, a_running_life

UNDISTURBED_WRITES = 8
INCIDENT_WRITES = 5


def test_an_undisturbed_life_takes_few_writes_in_this_order() -> None:
    life = a_life()
    life.offer = Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message="needs 2 nodes; 1 is free")
    life.settle().offer = None
    life.later(60).settle().later(5).start(0).settle().later(5).start(1).settle()
    life.later(3600).succeed(0).settle().later(10).succeed(1).settle()
    assert life.phases() == [Phase.PENDING, Phase.ADMITTED, Phase.STARTING, Phase.RUNNING, Phase.SUCCEEDED]
    assert len(life.written) <= UNDISTURBED_WRITES
    assert life.status.attempt == life.status.incarnation == 1
    assert life.status.restarts == 0


def test_an_incident_takes_few_writes_in_this_order() -> None:
    life = a_running_life()
    before = len(life.written)
    life.fail(1).settle().later(3).stops_end().settle().later(10).start().settle()
    assert life.phases()[-4:] == [Phase.RESTARTING, Phase.ADMITTED, Phase.STARTING, Phase.RUNNING]
    assert len(life.written) - before <= INCIDENT_WRITES


def test_a_charge_that_is_taken_back_costs_no_write_of_its_own_when_the_node_takes_the_next_attempt_too() -> None:
    life = a_running_life()
    life.fail(0).restart()
    before = len(life.written)
    life.later(50).lose("node-1").settle()
    assert life.status.charged_restarts == ()
    life.later(20).settle().start().settle()
    assert life.phase is Phase.RUNNING
    assert len(life.written) - before <= INCIDENT_WRITES


def test_many_incidents_keep_within_the_budget_of_writes() -> None:
    life = a_running_life(max_restarts=100)
    before = len(life.written)
    for _ in range(12):
        life.later(300).fail(0).fail(1).restart()
    assert len(life.written) - before <= 12 * INCIDENT_WRITES
    assert life.status.restarts == len(life.status.charged_restarts) == 12


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.RUNNING, Phase.SUSPENDED, Phase.SUCCEEDED])
def test_a_quiet_job_writes_nothing(phase: Phase) -> None:
    life = a_life(suspend=phase is Phase.SUSPENDED)
    if phase is Phase.PENDING:
        life.offer = Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message="needs 2 nodes; 1 is free")
    life.settle().start().settle()
    if phase is Phase.SUCCEEDED:
        life.succeed(0).succeed(1).settle()
    assert life.phase is phase
    before = len(life.written)
    for _ in range(20):
        life.later(3600).settle()
    assert len(life.written) == before


def test_a_gang_whose_pods_finish_one_by_one_is_noted_now_and_then() -> None:
    life = a_running_life(workers=8)
    life.succeed(0).settle()
    before = len(life.written)
    life.progress_due = False
    for index in range(1, 7):
        life.later(1).succeed(index).settle()
    assert len(life.written) == before, "more than one progress write within half a minute"
    assert life.wake_after == 30, "nobody would note the others"
    life.progress_due = True
    life.settle()
    assert len(life.written) == before + 1
    assert life.status.succeeded[0].indexes == "0-6"


def test_every_attempt_has_its_own_numbers_and_pods() -> None:
    life = a_running_life()
    for _ in range(3):
        life.later(60).fail(0).restart()
    assert life.status.attempt == life.status.incarnation == life.status.planned == life.status.launched == 4
    assert len(set(life.created)) == len(life.created) == 8


def test_pods_are_created_in_rank_order() -> None:
    life = a_life(workers=5).settle()
    assert [identity.index for identity in life.created] == [0, 1, 2, 3, 4]


def test_the_plan_is_committed_then_stored_and_only_then_pods_are_created() -> None:
    life = a_life()
    assert life.step()
    assert (life.phase, life.plan_stored, life.created) == (Phase.ADMITTED, "", [])
    assert life.step()
    assert (life.plan_stored, life.created) == (life.status.plan_sha256, [])
    assert life.step()
    assert len(life.created) == 2
    assert life.status.launched == 0
    assert life.step()
    assert life.status.launched == 1


def test_a_crash_after_any_step_of_a_start_changes_nothing_of_the_outcome() -> None:
    for steps in range(5):
        life = a_life()
        for _ in range(steps):
            life.step()
        life.crash().settle().start().settle()
        assert life.phase is Phase.RUNNING
        assert len(life.created) == 2
        assert life.status.restarts == 0


def test_a_plan_that_was_committed_but_never_stored_is_replaced_under_new_numbers() -> None:
    life = a_life()
    life.step()
    life.crash().settle()
    assert (life.status.attempt, life.status.incarnation) == (2, 2)
    assert {identity.incarnation for identity in life.created} == {2}
    assert life.status.incidents == ()


def test_a_plan_that_somebody_deletes_while_pods_are_created_ends_the_attempt_free_of_charge() -> None:
    life = a_life()
    for _ in range(3):
        life.step()
    life.plan_stored = ""
    life.crash().settle()
    assert life.phase is Phase.RESTARTING
    assert life.status.incident is not None
    life.stops_end().settle()
    assert (life.last.cause.value, life.last.charged) == ("PlanLost", False)
    assert life.restart().phase is Phase.RUNNING


def test_counts_tell_how_many_run() -> None:
    life = a_life(workers=3).settle().start(0, 2).settle()
    assert (life.status.ready, life.status.pods.running, life.status.pods.desired) == ("2/3", 2, 3)
    assert life.start().settle().status.ready == "3/3"


def test_the_image_is_noted_from_the_first_pod_that_tells_it() -> None:
    life = a_life().settle()
    life.becomes(1, image_id="registry/image@sha256:1").start().settle()
    assert life.status.image_id == "registry/image@sha256:1"
    life.fail(0).restart()
    assert life.status.image_id == "registry/image@sha256:1"


def test_seconds_lost_reach_from_the_incident_to_the_next_gang_that_runs() -> None:
    life = a_running_life()
    life.fail(0).settle().later(5).stops_end().settle()
    assert life.last.seconds_lost is None
    life.later(37).start().settle()
    assert life.last.seconds_lost == 42


def test_a_pod_that_is_refused_is_told_once_and_tried_again() -> None:
    life = a_life()
    life.refusal = "exceeded quota: gpus"
    for _ in range(2):
        life.step()
    life.step()
    condition = next(c for c in life.status.conditions if c.type == names.RUNNING)
    assert (condition.status, condition.reason) == ("False", names.REASON_POD_REFUSED)
    assert "exceeded quota" in condition.message
    before = len(life.written)
    assert life.step()
    assert len(life.written) == before
    life.refusal = ""
    assert life.settle().start().settle().phase is Phase.RUNNING
    assert all(pod.state is PodState.RUNNING for pod in life.pods.values())
