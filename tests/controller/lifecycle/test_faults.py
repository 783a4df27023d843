"""Public faults of other operators, by the number of their row in `docs/robustness.md`; here on `decide` alone.

The rows that need a server or real processes are tried again there.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.lifecycle.conditions import find
from meshwright.lifecycle.model import Identity, PodState, Rule
from meshwright_api import names
from meshwright_api.status import Cause, Phase
from tests.controller.lifecycle.gangs import a_pod, a_running_gang, an_open_incident, failed
from tests.controller.lifecycle.life import Life, a_life, a_running_life


def test_k01_exits_are_counted_although_every_pod_is_new() -> None:
    """K01: pods are made again, so their own restart counts stay 0, and the limit never trips."""
    life = a_running_life(max_restarts=3)
    for _ in range(3 + 2):
        life.later(60).fail(0, 137) if life.phase is Phase.RUNNING else life.later(60)
        life.restart()
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_MAX_RESTARTS)
    assert len(life.status.charged_restarts) == 3
    assert len(set(life.created)) == 2 * 4


def test_k02_a_permanent_exit_code_fails_the_job_with_a_reason() -> None:
    """K02: the job stays Restarting for ever."""
    life = a_running_life(rules=(Rule("Fail", exit_codes=(3,)),))
    life.fail(1, 3).settle().stops_end().settle()
    assert (life.phase, life.status.reason, life.last.action) == (Phase.FAILED, names.REASON_RULE, "Fail")
    message = find(life.status, names.FAILED).message  # type: ignore[union-attr]
    assert "exit code 3" in message
    assert "job-worker-1-1" in message


def crashing(life: Life, first: int) -> Life:
    """Lets a leader die after `first` steps, and after every second one from there; others go on."""
    for n in range(60):
        if n >= first and (n - first) % 2 == 0:
            life.crash()
        if not life.step():
            return life
    raise AssertionError("the leaders do not come to rest")


@pytest.mark.parametrize("first", range(6))
def test_k03_the_budget_survives_every_crash(first: int) -> None:
    """K03: retries are kept in the memory of the operator, and its restart resets them."""
    life = a_running_life(max_restarts=2)
    for n in range(1, 4):
        crashing(life.later(60).fail(0), first)
        crashing(life.stops_end(), first)
        crashing(life.start(), first)
        assert len(life.status.charged_restarts) == min(n, 2)
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_MAX_RESTARTS)
    assert len(life.status.incidents) == 3


@pytest.mark.parametrize("how", ["exit", "out of memory", "evicted", "image", "by rule"])
def test_k04_the_limit_holds_however_pods_fail(how: str) -> None:
    """K04: the limit is respected for one kind of restart only."""
    life = a_life(max_restarts=2, startup_deadline_seconds=600, rules=(Rule("Restart", reasons=("OutOfcpu",)),))
    reasons = {"exit": "Error", "out of memory": "OOMKilled", "evicted": "Evicted", "by rule": "OutOfcpu"}
    for _ in range(3):
        life.settle()
        if how == "image":
            life.becomes(0, waiting="ErrImagePull").later(600)
        else:
            life.start().settle().later(60).fail(0, 137, reasons[how])
        life.settle().stops_end()
    life.settle()
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_MAX_RESTARTS)
    assert len(life.status.charged_restarts) == 2


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_k05_one_incident_is_one_restart_however_many_pods_fail(workers: int) -> None:
    """K05: N failing pods burn N retries."""
    life = a_running_life(workers, max_restarts=1)
    for index in range(workers):
        life.later(1).fail(index)
    life.restart()
    assert (life.phase, len(life.status.charged_restarts), len(life.status.incidents)) == (Phase.RUNNING, 1, 1)
    assert life.last.culprit.index == 0


def test_k05_also_when_the_failures_arrive_between_two_passes() -> None:
    """K05."""
    life = a_running_life(4, max_restarts=1)
    for index in (2, 0, 3, 1):
        life.fail(index).step()
        life.later(1)
    life.restart()
    assert (life.phase, len(life.status.charged_restarts), len(life.status.incidents)) == (Phase.RUNNING, 1, 1)
    assert life.last.culprit.index == 2


@pytest.mark.parametrize("code", [143, 137, 1, 0])
def test_k06_our_own_deletions_never_count(code: int) -> None:
    """K06: deleting the siblings raises events that trigger another restart, until the limit is reached."""
    life = a_running_life(3, max_restarts=1)
    life.fail(0).settle().later(1)
    state = PodState.FAILED if code else PodState.SUCCEEDED
    for index in (1, 2):
        life.becomes(index, state=state, exit_code=code, finished_at=life.now, reason="Error")
    life.settle().start().settle()
    for _ in range(3):
        life.later(5).stops_end().settle()
    assert (life.phase, life.status.attempt, len(life.status.incidents)) == (Phase.RUNNING, 2, 1)
    assert life.last.culprit.pod_uid.endswith("worker-0-1-1")


def test_k06_remains_of_the_old_incarnation_open_nothing() -> None:
    """K06."""
    old = [failed(a_pod(i, 1), 137, 90, "Evicted", disruption="Preempted") for i in (0, 1)]
    scene = a_running_gang(attempt=2).but(pods=(a_pod(0, 2), a_pod(1, 2), *old))
    decision = scene.decide()
    assert decision.status is None
    assert {action.uid for action in decision.actions} == {"pod-0-1", "pod-1-1"}  # type: ignore[union-attr]


def test_k07_a_preempted_pod_that_was_also_evicted_and_failed_is_a_disruption() -> None:
    """K07: whichever event comes last wins."""
    for reason in ("Error", "Evicted", "OOMKilled"):
        life = a_running_life(rules=(Rule("Fail", exit_codes=(137,)),))
        life.fail(0, 137, reason, disruption="PreemptionByScheduler").restart()
        assert (life.phase, life.last.cause, life.last.charged) == (Phase.RUNNING, Cause.DISRUPTED, False)


def test_k08_what_happened_while_nobody_looked_is_decided_from_what_is() -> None:
    """K08: after a restart of the controller, the job ends before the failure is acted on."""
    life = a_running_life()
    life.crash().later(600).succeed(0).fail(1)
    life.restart()
    assert (life.phase, len(life.status.incidents)) == (Phase.RUNNING, 1)
    life.crash().later(600).succeed(0).succeed(1).settle()
    assert life.phases()[-1] is Phase.SUCCEEDED


def test_k08_the_order_of_the_pods_does_not_matter() -> None:
    """K08."""
    pods = (failed(a_pod(0), 7, 95), failed(a_pod(1), 1, 90))
    one = an_open_incident(Cause.EXIT_CODE, pods[0], *pods).decide()
    other = an_open_incident(Cause.EXIT_CODE, pods[0], *reversed(pods)).decide()
    assert one == other
    assert one.status is not None


@pytest.mark.parametrize("index", [0, 1])
def test_k12_a_deleted_pod_restarts_the_whole_gang(index: int) -> None:
    """K12: only that pod returns, and the others hang in their collectives."""
    life = a_running_life()
    life.delete(index).settle().stops_end().settle().start().settle()
    assert (life.phase, life.status.attempt, life.status.incarnation) == (Phase.RUNNING, 2, 2)
    assert life.created == [Identity("worker", i, n) for n in (1, 2) for i in (0, 1)]
    assert (life.last.cause, life.last.charged) == (Cause.POD_LOST, False)
    assert life.last.culprit.index == index


def test_k12_also_if_it_is_gone_before_anybody_looks() -> None:
    """K12: a forced deletion, or one during an outage of ours."""
    life = a_running_life()
    del life.pods[life.pod(1).uid]
    life.crash().restart()
    assert (life.phase, life.status.incarnation, life.last.cause) == (Phase.RUNNING, 2, Cause.POD_LOST)


def test_k13_the_restart_begins_before_every_pod_has_terminated() -> None:
    """K13: grace periods add minutes."""
    life = a_running_life()
    life.policy = replace(life.policy, roles=(replace(life.policy.roles[0], grace_seconds=600),))
    life.fail(0).settle()
    assert {action.grace_seconds for action in life.deleted} == {30}
    life.later(15).settle()
    assert life.pod(0).identity.incarnation == 2


def test_k16_an_image_that_cannot_be_pulled_ends_with_its_reason() -> None:
    """K16: the head is made again for ever."""
    life = a_life(startup_deadline_seconds=600, max_restarts=1)
    for _ in range(2):
        life.settle().becomes(0, waiting="ImagePullBackOff").later(600).settle().stops_end()
    life.settle()
    assert (life.phase, life.last.culprit.reason) == (Phase.FAILED, "ImagePullBackOff")


@pytest.mark.parametrize("how", ["deleted", "failed", "node lost"])
def test_k17_losing_rank_0_restarts_the_job_and_frees_everything(how: str) -> None:
    """K17: the job's state is lost, it stays Running for ever, and the workers leak."""
    life = a_running_life(4, force_delete_on_lost_node=True)
    match how:
        case "deleted":
            life.delete(0)
        case "failed":
            life.fail(0)
        case _:
            life.lose(life.pod(0).node)
    life.settle().stops_end().later(15).settle().start().settle()
    assert (life.phase, life.status.incarnation) == (Phase.RUNNING, 2)
    left = [pod for pod in life.pods.values() if pod.identity.incarnation == 1]
    assert all(pod.ended and pod.uid == life.last.culprit.pod_uid for pod in left)


@pytest.mark.parametrize("phase", [Phase.SUCCEEDED, Phase.FAILED])
def test_k48_a_finished_job_never_runs_again(phase: Phase) -> None:
    """K48: what belonged to it is removed, and it runs again, for ever."""
    life = a_running_life(max_restarts=0)
    life.succeed(0).succeed(1) if phase is Phase.SUCCEEDED else life.fail(0)
    life.settle().stops_end().settle()
    life.pods.clear()
    life.plan_stored = ""
    for _ in range(3):
        life.crash().later(86_400).settle()
        life.change(max_restarts=100, suspend=not life.policy.suspend).settle()
    assert (life.phase, len(life.created), life.pods) == (phase, 2, {})


def test_k50_pods_of_a_namesake_are_not_ours() -> None:
    """K50: the cache hands over pods by owner UID; of those, older incarnations never matter to the gang."""
    life = a_life()
    life.pods["old"] = a_pod(0, 0, uid="old", state=PodState.FAILED, exit_code=1)
    life.settle().start().settle()
    assert (life.phase, life.status.incidents) == (Phase.RUNNING, ())
    assert "old" not in life.pods


def test_k51_a_stale_cache_makes_no_second_pod() -> None:
    """K51, K52: creating again what exists is success, since names are deterministic."""
    scene = a_running_gang(phase=Phase.ADMITTED, launched=0).but(pods=())
    assert scene.decide() == scene.decide()
    assert [a.identity for a in scene.decide().actions] == [Identity("worker", i, 1) for i in (0, 1)]  # type: ignore[union-attr]


@pytest.mark.parametrize("seen", [(0,), (0, 1), (0, 1, 2), (2,)])
def test_k61_events_that_were_batched_or_missed_make_no_difference(seen: tuple[int, ...]) -> None:
    """K61: the same life, watched more or less closely, comes to the same end."""
    life = a_running_life()
    for moment in range(3):
        life.later(1).fail(moment) if moment < 2 else life.later(1)
        if moment in seen:
            life.settle()
    life.restart()
    assert (life.phase, life.status.restarts, life.last.culprit.index) == (Phase.RUNNING, 1, 0)


def test_k62_a_resumed_job_shows_what_it_does() -> None:
    """K62: it shows Suspended while it runs."""
    life = a_running_life()
    life.change(suspend=True).settle().stops_end().settle()
    life.change(suspend=False).settle().start().settle()
    told = {c.type: c.status for c in life.status.conditions}
    assert (life.phase, told[names.SUSPENDED], told[names.RUNNING]) == (Phase.RUNNING, "False", "True")
