"""What restarts cost: two budgets within sliding windows, and charges that are taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.lifecycle.model import Rule
from meshwright_api import names
from meshwright_api.status import Cause, Phase
from tests.controller.lifecycle.life import Life, a_life, a_running_life


def fails_again(life: Life, seconds: float = 300) -> Life:
    """Another failure of a pod's own, and the restart if there is one."""
    return life.later(seconds).fail(0).restart()


def disrupted_again(life: Life, seconds: float = 300) -> Life:
    life.later(seconds).becomes(0, disruption="PreemptionByScheduler")
    return life.restart()


@pytest.mark.parametrize("allowed", [0, 1, 3])
def test_exactly_max_restarts_are_charged_and_the_next_failure_is_the_last(allowed: int) -> None:
    life = a_running_life(max_restarts=allowed)
    for n in range(allowed):
        fails_again(life)
        assert (life.phase, len(life.status.charged_restarts)) == (Phase.RUNNING, n + 1)
    fails_again(life)
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_MAX_RESTARTS)
    assert life.status.restarts == len(life.status.charged_restarts) == allowed
    assert len(life.status.incidents) == allowed + 1
    condition = next(c for c in life.status.conditions if c.type == names.FAILED)
    assert f"maxRestarts: {allowed} in 86400 s" in condition.message
    assert "exit code 1" in condition.message


def test_the_window_slides() -> None:
    life = a_running_life(max_restarts=2, window_seconds=3600)
    for _ in range(6):
        fails_again(life, 1801)
    assert life.phase is Phase.RUNNING
    assert life.status.restarts == 6
    fails_again(life, 100)
    assert fails_again(life, 100).phase is Phase.FAILED


def test_a_charge_counts_until_the_window_is_over_and_not_a_second_longer() -> None:
    for seconds, phase in ((3599, Phase.FAILED), (3600, Phase.RUNNING)):
        life = a_running_life(max_restarts=1, window_seconds=3600)
        life.fail(0).settle().stops_end().settle().start().settle()
        assert fails_again(life, seconds).phase is phase


@pytest.mark.parametrize("allowed", [0, 2])
def test_disruptions_have_a_budget_of_their_own(allowed: int) -> None:
    life = a_running_life(max_restarts=0, max_disruptions=allowed)
    for _ in range(allowed):
        assert disrupted_again(life).phase is Phase.RUNNING
    assert life.status.charged_restarts == ()
    disrupted_again(life)
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_MAX_DISRUPTIONS)
    assert len(life.status.disruptions) == allowed


def test_disruptions_leave_the_window_too() -> None:
    life = a_running_life(max_disruptions=1, window_seconds=3600)
    for _ in range(4):
        disrupted_again(life, 3601)
    assert life.phase is Phase.RUNNING
    assert len(life.status.disruptions) == 1
    assert life.status.restarts == 4


def test_charges_and_disruptions_do_not_mix() -> None:
    life = a_running_life(max_restarts=2, max_disruptions=2)
    for again in (fails_again, disrupted_again, fails_again, disrupted_again):
        again(life)
    assert (len(life.status.charged_restarts), len(life.status.disruptions), life.status.restarts) == (2, 2, 4)
    assert life.phase is Phase.RUNNING


def test_free_by_rule_counts_as_a_disruption() -> None:
    life = a_running_life(max_restarts=0, rules=(Rule("RestartFree", exit_codes=(75,)),))
    life.fail(0, 75).restart()
    assert (life.phase, len(life.status.disruptions), life.last.action) == (Phase.RUNNING, 1, "RestartFree")


def test_a_larger_budget_that_is_set_later_counts_at_once() -> None:
    life = a_running_life(max_restarts=1)
    fails_again(life)
    life.change(max_restarts=2)
    assert fails_again(life).phase is Phase.RUNNING


# --- taking a charge back ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds", "free"), [(0, True), (47, True), (120, True), (121, False)])
def test_a_charge_is_taken_back_if_a_node_of_the_gang_is_lost_soon_after(seconds: int, free: bool) -> None:
    life = a_running_life(max_restarts=1)
    life.fail(0).restart()
    assert len(life.status.charged_restarts) == 1
    life.later(seconds).lose("node-1").step()
    assert life.status.charged_restarts == (() if free else (life.last.judged_at,))
    assert (life.status.incidents[0].charged, life.status.incidents[0].cause) == (
        (False, Cause.NODE_LOST) if free else (True, Cause.EXIT_CODE)
    )
    assert len(life.status.disruptions) == int(free)


def test_the_culprits_own_node_counts_although_its_pod_has_ended() -> None:
    life = a_running_life()
    life.fail(0).settle().stops_end().settle()
    culprit = life.last.culprit.node
    life.start().settle()
    for uid, pod in tuple(life.pods.items()):
        if not pod.ended:
            life.pods[uid] = replace(pod, node=f"other-{pod.identity.index}")
    life.later(50).lose(culprit).settle()
    assert life.status.charged_restarts == ()
    assert life.phase is Phase.RUNNING, "the gang runs elsewhere already"


def test_every_charge_of_the_last_two_minutes_is_taken_back() -> None:
    """The peers of a dead node may fail twice before the node is called lost."""
    life = a_running_life()
    life.fail(0).restart()
    life.later(30).fail(0).restart()
    assert len(life.status.charged_restarts) == 2
    life.later(17).lose("node-1").settle()
    assert not life.status.charged_restarts
    assert len(life.status.disruptions) == 2


def test_an_older_charge_stays() -> None:
    life = a_running_life()
    life.fail(0).restart()
    life.later(1000).fail(0).restart()
    life.later(30).lose("node-1").settle()
    assert life.status.charged_restarts == (life.status.incidents[0].judged_at,)


def test_two_charges_of_one_second_are_two() -> None:
    life = a_running_life()
    life.fail(0).restart()
    life.fail(0).restart()
    assert len(life.status.charged_restarts) == 2
    life.lose("node-1").step()
    assert not life.status.charged_restarts


def test_another_gangs_node_takes_nothing_back() -> None:
    life = a_running_life()
    life.fail(0).restart()
    before = life.status
    life.later(30).lose("node-77").settle()
    assert life.status == before


def test_what_was_free_is_not_taken_back() -> None:
    life = a_running_life()
    disrupted_again(life)
    life.later(30).lose("node-1").settle()
    assert len(life.status.disruptions) == 1, "the lost node's own incident is not judged yet"


def test_a_failed_job_stays_failed_whatever_its_nodes_do() -> None:
    life = a_running_life(max_restarts=0)
    life.fail(0).settle().stops_end().settle()
    assert life.phase is Phase.FAILED
    life.later(30).lose("node-1").settle()
    assert life.phase is Phase.FAILED


def test_a_budget_survives_suspension() -> None:
    life = a_running_life(max_restarts=1)
    fails_again(life)
    life.change(suspend=True).settle().stops_end().settle()
    life.change(suspend=False).settle().start().settle()
    assert fails_again(life).phase is Phase.FAILED


def test_a_job_that_never_ran_has_spent_nothing() -> None:
    life = a_life().settle()
    assert (life.status.restarts, life.status.charged_restarts, life.status.disruptions) == (0, (), ())
