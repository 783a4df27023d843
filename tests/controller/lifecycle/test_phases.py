"""The table of phases: every step that it allows is taken by some job, and no other step can be written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from meshwright.lifecycle.model import Offer, PodState
from meshwright.lifecycle.phases import TERMINAL, TRANSITIONS, IllegalTransition, step
from meshwright_api import names
from meshwright_api.status import Cause, Phase, TrainingJobStatus
from tests.controller.lifecycle.gangs import (
    T0,
    Scene,
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

NO_ROOM = Offer(reason=names.REASON_WAITING_FOR_CAPACITY, message="needs 2 nodes; 1 is free")
ROOM = Offer(plan_sha256="plan-2")
SUSPENDED = a_policy(suspend=True)
DEADLINE = a_policy(active_deadline_seconds=60)


def waiting() -> Scene:
    return a_new_job(offer=NO_ROOM).then()


def admitted(stored: bool = True) -> Scene:
    scene = a_running_gang(phase=Phase.ADMITTED, launched=0).but(pods=())
    return scene if stored else scene.but(plan_stored="")


def created(state: PodState = PodState.WAITING) -> Scene:
    return admitted().but(pods=(a_pod(0, state=state), a_pod(1, state=state)))


def starting() -> Scene:
    return a_running_gang(a_pod(1, state=PodState.WAITING), phase=Phase.STARTING)


def running() -> Scene:
    return a_running_gang()


def restarting() -> Scene:
    """An incident has been judged; the next plan is awaited."""
    return a_running_gang(phase=Phase.RESTARTING, attempt=2, planned=1, launched=1, incarnation=1).but(
        pods=(), offer=ROOM
    )


def suspended() -> Scene:
    return a_new_job(SUSPENDED).then()


def with_policy(scene: Scene, **fields: Any) -> Scene:
    return scene.but(job=a_job(a_policy(**fields)))


def emptied(scene: Scene) -> Scene:
    """A suspension that was begun, and every pod is gone."""
    scene = with_policy(scene, suspend=True)
    scene = scene.then() if scene.o.pods else scene
    return scene.but(pods=(), pods_confirmed=True)


BOTH_DONE = (succeeded(a_pod(0), 50), succeeded(a_pod(1), 60))

STEPS: dict[tuple[Phase | None, Phase], Callable[[], Scene]] = {
    (None, Phase.PENDING): lambda: a_new_job(offer=NO_ROOM),
    (None, Phase.ADMITTED): lambda: a_new_job(),
    (None, Phase.SUSPENDED): lambda: a_new_job(SUSPENDED),
    (Phase.PENDING, Phase.ADMITTED): lambda: waiting().but(offer=ROOM),
    (Phase.PENDING, Phase.SUSPENDED): lambda: emptied(waiting()),
    (Phase.ADMITTED, Phase.ADMITTED): lambda: admitted(stored=False).but(offer=ROOM, pods_confirmed=True),
    (Phase.ADMITTED, Phase.PENDING): lambda: admitted(stored=False).but(offer=NO_ROOM, pods_confirmed=True),
    (Phase.ADMITTED, Phase.STARTING): created,
    (Phase.ADMITTED, Phase.RUNNING): lambda: created(PodState.RUNNING),
    (Phase.ADMITTED, Phase.RESTARTING): lambda: created().but(pods=(failed(a_pod(0)),)),
    (Phase.ADMITTED, Phase.SUSPENDED): lambda: emptied(created()),
    (Phase.ADMITTED, Phase.SUCCEEDED): lambda: created().but(pods=BOTH_DONE),
    (Phase.ADMITTED, Phase.FAILED): lambda: with_policy(created(), active_deadline_seconds=60),
    (Phase.STARTING, Phase.RUNNING): lambda: starting().but(pods=(a_pod(0), a_pod(1))),
    (Phase.STARTING, Phase.RESTARTING): lambda: starting().but(pods=(failed(a_pod(0)), a_pod(1))),
    (Phase.STARTING, Phase.SUSPENDED): lambda: emptied(starting()),
    (Phase.STARTING, Phase.SUCCEEDED): lambda: starting().but(pods=BOTH_DONE),
    (Phase.STARTING, Phase.FAILED): lambda: with_policy(starting(), active_deadline_seconds=60),
    (Phase.RUNNING, Phase.RESTARTING): lambda: a_running_gang(failed(a_pod(1))),
    (Phase.RUNNING, Phase.SUSPENDED): lambda: emptied(running()),
    (Phase.RUNNING, Phase.SUCCEEDED): lambda: a_running_gang(*BOTH_DONE),
    (Phase.RUNNING, Phase.FAILED): lambda: with_policy(running(), active_deadline_seconds=60),
    (Phase.RESTARTING, Phase.ADMITTED): restarting,
    (Phase.RESTARTING, Phase.PENDING): lambda: restarting().but(offer=NO_ROOM),
    (Phase.RESTARTING, Phase.SUSPENDED): lambda: emptied(restarting()),
    (Phase.RESTARTING, Phase.FAILED): lambda: with_policy(an_open_incident(Cause.EXIT_CODE), max_restarts=0),
    (Phase.SUSPENDED, Phase.PENDING): lambda: with_policy(suspended(), suspend=False).but(offer=NO_ROOM),
    (Phase.SUSPENDED, Phase.ADMITTED): lambda: with_policy(suspended(), suspend=False).but(offer=ROOM),
}


@pytest.mark.parametrize(("old", "new"), STEPS, ids=lambda phase: str(phase and phase.value))
def test_every_step_of_the_table_is_taken_by_some_job(old: Phase | None, new: Phase) -> None:
    scene = STEPS[old, new]()
    assert scene.o.status.phase is old
    assert scene.status().phase is new


def test_the_table_has_no_step_that_no_job_takes() -> None:
    assert {(old, new) for old, allowed in TRANSITIONS.items() for new in allowed} == set(STEPS)


ALL = (None, *Phase)


@pytest.mark.parametrize("old", ALL, ids=str)
def test_every_other_step_is_refused(old: Phase | None) -> None:
    for new in Phase:
        if new is old or new in TRANSITIONS[old]:
            assert step(old, new) is new
        else:
            with pytest.raises(IllegalTransition):
                step(old, new)


def test_nothing_follows_a_terminal_phase() -> None:
    assert all(not TRANSITIONS[phase] for phase in TERMINAL)


def test_a_decision_that_takes_an_illegal_step_is_a_defect_that_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    from meshwright.lifecycle import decide as module
    from meshwright.lifecycle.model import Decision, Observation, Policy

    def jump(o: Observation, policy: Policy) -> Decision:
        return Decision(status=TrainingJobStatus(phase=Phase.RUNNING))

    monkeypatch.setattr(module, "STEPS", (jump,))
    with pytest.raises(IllegalTransition, match="None -> Running"):
        a_new_job().decide()


def test_times_of_a_test_are_whole_seconds() -> None:
    assert (at(1) - T0).total_seconds() == 1
