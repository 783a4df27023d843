"""Every interleaving, judged by named promises; and mutants, so that each judge is known to be able to say no."""

from __future__ import annotations

from dataclasses import replace

import pytest

from meshwright.lifecycle import admitting, breaking, decide, incidents, starting, stopping, success
from meshwright.lifecycle.model import CreatePod, Decision, Identity, Observation, Policy
from meshwright.lifecycle.phases import PLANNED, TERMINAL
from meshwright_api.status import TrainingJobStatus
from tests.controller.lifecycle.exploration import SETTINGS, Broken, Explorer
from tests.controller.lifecycle.promises import PROMISES
from tests.controller.lifecycle.world import Budgets, Setting

real_decide = decide.decide


@pytest.fixture(scope="module")
def explorer() -> Explorer:
    return Explorer()


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda s: s.name.replace(" ", "-").replace(",", ""))
def test_every_interleaving_keeps_every_promise_and_comes_to_rest(
    explorer: Explorer, setting: Setting, capsys: pytest.CaptureFixture[str]
) -> None:
    found = explorer.explore(setting)
    with capsys.disabled():
        print(f"\n{found}", end=" ")
    assert found.states > 500
    assert found.at_rest > 10


@pytest.mark.parametrize("pods", [1, 2])
def test_an_undisturbed_life_keeps_every_promise(pods: int) -> None:
    found = Explorer().explore(Setting("undisturbed", Budgets(), pods=pods))
    print(found)
    assert found.at_rest > 0


FAILURE = Setting("a failure", Budgets(fails=1), successes=False)


def the_broken_promise(setting: Setting) -> str:
    """Explores until a promise is broken."""
    with pytest.raises(Broken) as broken:
        Explorer().explore(setting)
    print(broken.value)
    assert broken.value.promise in PROMISES
    return broken.value.promise


Patch = pytest.MonkeyPatch


def instead(monkeypatch: Patch, step: decide.Step, other: decide.Step) -> None:
    """Puts another step in a step's place."""
    monkeypatch.setattr(decide, "STEPS", tuple(other if s is step else s for s in decide.STEPS))


def test_dropping_an_incident_is_noticed(monkeypatch: Patch) -> None:
    def drop(o: Observation, policy: Policy) -> Decision | None:
        return Decision(status=o.status.model_copy(update={"incident": None})) if o.status.incident else None

    instead(monkeypatch, breaking.judge_incident, drop)
    assert the_broken_promise(FAILURE) == "counted once"


def create_at_once(o: Observation) -> Decision:
    """Creates the next incarnation's pods with the judgement, before anything says that they may exist."""
    if o.status.incident and not o.pods_confirmed and real_decide(o).confirm_pods:
        return Decision(actions=(CreatePod(Identity("worker", 0, o.status.incarnation + 1)),))
    return real_decide(o)


def test_a_pod_before_the_judgement_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(decide, "decide", create_at_once)
    assert the_broken_promise(FAILURE) == "judged before created"


def test_counting_pods_instead_of_incidents_is_noticed(monkeypatch: Patch) -> None:
    def count(
        o: Observation, policy: Policy, status: TrainingJobStatus, verdict: incidents.Verdict
    ) -> TrainingJobStatus:
        failures = sum(pod.exit_code == 1 for pod in o.pods)
        return status.model_copy(
            update={
                "charged_restarts": (*status.charged_restarts, *[o.now] * failures),
                "restarts": status.restarts + failures,
            }
        )

    monkeypatch.setattr(breaking, "_count", count)
    assert the_broken_promise(FAILURE) == "budget kept"


def test_restarts_that_are_not_counted_are_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(breaking, "_count", lambda o, policy, status, verdict: status)
    assert the_broken_promise(FAILURE) == "budget kept"


def test_blaming_nobody_for_a_failure_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(incidents, "FREE", frozenset(incidents.PRECEDENCE))
    assert the_broken_promise(FAILURE) == "charged exactly"


def test_an_incarnation_that_is_used_twice_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(admitting, "next_incarnation", lambda status: max(1, status.incarnation))
    assert the_broken_promise(FAILURE) == "never backwards"


def test_judging_from_the_cache_alone_is_noticed(monkeypatch: Patch) -> None:
    judge = breaking.judge_incident
    instead(monkeypatch, judge, lambda o, policy: judge(replace(o, pods_confirmed=True), policy))
    setting = Setting("a failure, two leaders", Budgets(fails=1, transfers=1), successes=False, lag=2)
    assert the_broken_promise(setting) == "old ones stopped"


def test_suspending_from_the_cache_alone_is_noticed(monkeypatch: Patch) -> None:
    suspend = stopping.suspend
    instead(monkeypatch, suspend, lambda o, policy: suspend(replace(o, pods_confirmed=True), policy))
    setting = Setting("suspend, two leaders", Budgets(toggles=1, transfers=1), successes=False, lag=2)
    assert the_broken_promise(setting) == "suspended is empty"


def test_writes_that_ignore_the_version_are_noticed() -> None:
    setting = Setting("a late write", Budgets(fails=1, transfers=1), successes=False, late=True, versions=False)
    assert the_broken_promise(setting) in ("never backwards", "counted once", "budget kept")


def test_a_leader_that_trusts_its_old_view_of_the_job_is_noticed() -> None:
    setting = Setting("trust", Budgets(deletions=1, transfers=1), successes=False, fresh_start=False)
    assert the_broken_promise(setting) in ("created once", "judged before created")


def test_taking_exit_code_0_after_a_stop_for_success_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(success, "finished_by_itself", lambda pod: True)
    monkeypatch.setattr(incidents, "finished_by_itself", lambda pod: True)
    setting = Setting("a deletion", Budgets(deletions=2), exits_on_stop=True)
    assert the_broken_promise(setting) == "success is true"


def test_making_a_deleted_pod_again_is_noticed(monkeypatch: Patch) -> None:
    """K12: only that pod returns, and the others wait for the old one for ever."""

    def launch_again(o: Observation, policy: Policy) -> Decision | None:
        if o.status.phase not in PLANNED or o.status.launched != o.status.attempt:
            return None
        return starting.launch(replace(o, status=o.status.model_copy(update={"launched": 0})), policy)

    def revive(o: Observation, policy: Policy) -> Decision | None:
        missing = policy.size > len(incidents.gang_of(o))
        return launch_again(o, policy) if missing and not o.status.succeeded else None

    monkeypatch.setattr(decide, "STEPS", (revive, *decide.STEPS))
    setting = Setting("a deletion", Budgets(deletions=1), successes=False)
    assert the_broken_promise(setting) == "created once"


def test_leaving_old_pods_alone_is_noticed(monkeypatch: Patch) -> None:
    monkeypatch.setattr(decide, "STEPS", tuple(s for s in decide.STEPS if s is not stopping.clear_old_pods))
    assert the_broken_promise(Setting("two failures", Budgets(fails=2), pods=1, successes=False)) == "rest is right"


def test_stopping_healthy_pods_is_noticed(monkeypatch: Patch) -> None:
    def stop_all(o: Observation, policy: Policy) -> Decision | None:
        actions = stopping.stop_pods(o, policy, o.pods)
        return Decision(actions=actions) if actions else None

    monkeypatch.setattr(decide, "STEPS", (stop_all, *decide.STEPS))
    assert the_broken_promise(FAILURE) == "healthy ones live"


def test_a_decision_that_is_made_again_and_again_is_noticed(monkeypatch: Patch) -> None:
    def acknowledge(o: Observation, policy: Policy) -> Decision | None:
        return Decision(status=o.status) if o.status.phase is not None and o.status.launched else None

    monkeypatch.setattr(decide, "STEPS", (*decide.STEPS, acknowledge))
    assert the_broken_promise(FAILURE) == "decisions come to rest"


def wake_up(o: Observation) -> Decision:
    """Lets a finished job go on."""
    if o.status.phase in TERMINAL and o.status.restarts == 0:
        return Decision(status=o.status.model_copy(update={"phase": None}))
    return real_decide(o)


def test_a_job_that_rises_again_is_noticed(monkeypatch: Patch) -> None:
    """K48."""
    monkeypatch.setattr(decide, "decide", wake_up)
    assert the_broken_promise(Setting("undisturbed", Budgets())) == "final is final"


UNDONE = (
    (breaking.judge_incident, Budgets(fails=1)),
    (stopping.suspend, Budgets(toggles=1)),
    (admitting.admit, Budgets()),
)


@pytest.mark.parametrize(("undone", "budgets"), UNDONE, ids=lambda value: getattr(value, "__name__", ""))
def test_a_step_that_is_left_out_is_noticed(monkeypatch: Patch, undone: decide.Step, budgets: Budgets) -> None:
    monkeypatch.setattr(decide, "STEPS", tuple(s for s in decide.STEPS if s is not undone))
    assert the_broken_promise(Setting("left out", budgets, successes=False)) == "rest is right"
