"""What a status says of progress: never of an older attempt, with every write, and on its own only now and then."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshwright.lifecycle.codec import observation_from_json, observation_to_json
from meshwright.lifecycle.decide import REFRESH_SECONDS, decide
from meshwright.lifecycle.model import Rule
from meshwright.lifecycle.progressing import only_progress
from meshwright.progress import Progress as Report
from meshwright_api.status import Cause, CheckpointStatus, Incident, Phase, Progress
from tests.controller.lifecycle.gangs import (
    Scene,
    a_pod,
    a_policy,
    a_running_gang,
    an_open_incident,
    at,
    failed,
    succeeded,
)

SAID = Report(
    attempt=1,
    incarnation=1,
    step=120,
    steps=1000,
    loss=2.3456789,
    tokens_per_second=1234.6,
    mfu=0.4567,
    eta_seconds=99.5,
    checkpoint_step=100,
    checkpoint_time=at(80),
)
SHOWN = Progress(
    attempt=1,
    step=120,
    total_steps=1000,
    loss="2.34568",
    tokens_per_second=1235,
    mfu_percent=46,
    eta_seconds=100,
    observed_at=at(100),
)


def running(said: Report | None = SAID, **fields: Any) -> Scene:
    return a_running_gang(**fields).but(progress=said)


def second_attempt(**status: Any) -> Scene:
    return a_running_gang(attempt=2, **status).but(pods=(a_pod(0, 2), a_pod(1, 2)))


def test_the_figures_are_those_of_the_report() -> None:
    status = running().status()
    assert status.progress == SHOWN
    assert status.checkpoint == CheckpointStatus(step=100, committed_at=at(80))
    assert only_progress(running().then().but(progress=replace(SAID, step=121)).o.status, status) is False
    assert running().then().decide().status is None, "a job that says nothing new is not written"


@pytest.mark.parametrize(
    ("figure", "value", "shown"),
    [
        ("loss", float("nan"), ("loss", "nan")),
        ("loss", None, ("loss", "")),
        ("tokens_per_second", float("inf"), ("tokens_per_second", None)),
        ("mfu", float("nan"), ("mfu_percent", None)),
        ("eta_seconds", None, ("eta_seconds", None)),
    ],
)
def test_what_is_no_number_is_not_shown_as_one(figure: str, value: Any, shown: tuple[str, Any]) -> None:
    status = running(replace(SAID, **{figure: value})).status()
    assert getattr(status.progress, shown[0]) == shown[1]


def test_it_is_written_only_when_it_is_time_and_then_without_any_event() -> None:
    early = running().but(progress_due=False)
    decision = early.decide()
    assert (decision.status, decision.actions, decision.wake_after) == (None, (), REFRESH_SECONDS)
    assert early.but(progress_due=True).status().progress == SHOWN


def test_a_quiet_job_is_neither_written_nor_looked_at() -> None:
    quiet = running().then()
    for scene in (quiet, quiet.after(3600), quiet.but(progress_due=False), quiet.but(progress=None)):
        decision = scene.decide()
        assert (decision.status, decision.actions, decision.wake_after) == (None, (), None)


@pytest.mark.parametrize(
    "said",
    [replace(SAID, attempt=0), replace(SAID, attempt=2), replace(SAID, incarnation=0), None],
    ids=["older attempt", "attempt without a plan", "older pods", "nothing"],
)
def test_only_the_committed_plans_processes_are_believed(said: Report | None) -> None:
    known = running().then()
    assert known.but(progress=said and replace(said, step=999)).decide().status is None


def test_the_next_attempt_may_begin_at_an_earlier_step() -> None:
    before = running().status()
    again = second_attempt(progress=before.progress, checkpoint=before.checkpoint)
    said = replace(SAID, attempt=2, incarnation=2, step=101)
    status = again.but(progress=said).status()
    assert status.progress is not None
    assert (status.progress.attempt, status.progress.step) == (2, 101)


def test_a_new_leader_that_heard_less_takes_nothing_back() -> None:
    known = running().then()
    assert known.but(progress=replace(SAID, step=110)).decide().status is None


def test_a_report_without_a_step_shows_nothing() -> None:
    assert running(Report(attempt=1, incarnation=1, phase="starting")).decide().status is None


def test_progress_rides_with_any_other_write_though_its_own_time_has_not_come() -> None:
    done = running().but(pods=(succeeded(a_pod(0)), succeeded(a_pod(1))), progress_due=False).status()
    assert (done.phase, done.progress) == (Phase.SUCCEEDED, SHOWN)
    broken = running().but(pods=(failed(a_pod(0), when=90), a_pod(1)), progress_due=False).status()
    assert (broken.phase, broken.progress) == (Phase.RESTARTING, SHOWN)
    assert not only_progress(running().o.status, done)


class TestCheckpoints:
    @pytest.mark.parametrize(
        ("step", "seconds", "shown"),
        [(120, 90, 120), (90, 70, 100), (10, 90, 10), (100, 80, 100), (140, None, 140), (90, None, 100)],
        ids=["newer", "older", "a training that began anew", "the same", "newer by its step", "older by its step"],
    )
    def test_the_newest_is_shown(self, step: int, seconds: float | None, shown: int) -> None:
        moment = None if seconds is None else at(seconds)
        later = running().then().but(progress=replace(SAID, step=130, checkpoint_step=step, checkpoint_time=moment))
        found = later.status().checkpoint
        assert found is not None
        assert found.step == shown

    def test_it_stays_when_a_report_names_none(self) -> None:
        later = running().then().but(progress=replace(SAID, step=130, checkpoint_step=None, checkpoint_time=None))
        assert later.status().checkpoint == CheckpointStatus(step=100, committed_at=at(80))


class TestIncidents:
    def judged(self, said: Report | None, **status: Any) -> Incident:
        ended = (failed(a_pod(0), when=90), failed(a_pod(1), when=91))
        scene = an_open_incident(Cause.EXIT_CODE, ended[0], *ended, **status).but(progress=said)
        return scene.status().incidents[-1]

    def test_an_incident_says_what_its_attempt_had_reached(self) -> None:
        assert self.judged(SAID).step_reached == 120
        assert self.judged(None, progress=SHOWN).step_reached == 120

    def test_the_reach_of_an_earlier_attempt_is_not_its_own(self) -> None:
        assert self.judged(None, progress=SHOWN.model_copy(update={"attempt": 0})).step_reached is None
        assert self.judged(None).step_reached is None

    def resumed(self, step: int, checkpoint: CheckpointStatus | None) -> int | None:
        incident = self.judged(SAID)
        scene = second_attempt(incidents=(incident,), progress=SHOWN, checkpoint=checkpoint)
        said = Report(attempt=2, incarnation=2, step=step, checkpoint_step=step, checkpoint_time=at(99))
        after = scene.but(progress=said).then()
        later = after.but(progress=replace(said, step=500, checkpoint_step=500, checkpoint_time=at(200)))
        assert later.status().incidents == after.o.status.incidents, "the first word decides"
        return after.o.status.incidents[-1].step_resumed

    def test_the_next_attempts_first_word_says_where_it_went_on(self) -> None:
        assert self.resumed(110, CheckpointStatus(step=100)) == 100

    def test_what_is_not_known_is_not_guessed(self) -> None:
        assert self.resumed(3, CheckpointStatus(step=100)) is None, "it began anew"
        assert self.resumed(110, None) is None


class TestFenced:
    """A process that found a newer attempt at work has done its duty: nobody is charged for it."""

    ENDED = (failed(a_pod(0), 76, 90), failed(a_pod(1), 1, 89))

    def test_it_explains_its_peers_and_is_free(self) -> None:
        scene = an_open_incident(Cause.FENCED, self.ENDED[0], *self.ENDED, policy=a_policy(agent=True))
        incident = scene.status().incidents[-1]
        assert (incident.cause, incident.charged, incident.action) == (Cause.FENCED, False, "RestartFree")
        assert scene.status().charged_restarts == ()

    def test_who_hears_of_the_next_attempt_since_a_peer_failed_does_not_explain_the_failure(self) -> None:
        """The incident numbers the next attempt; agents that hear of it end before they are told to stop."""
        broken, heard = failed(a_pod(1), 9, 98), failed(a_pod(0), 76, 99)
        scene = an_open_incident(Cause.EXIT_CODE, broken, broken, heard, policy=a_policy(agent=True))
        assert scene.o.status.incident is not None
        assert scene.o.status.incident.opened_at == at(99)
        incident = scene.status().incidents[-1]
        assert (incident.cause, incident.culprit.exit_code, incident.charged) == (Cause.EXIT_CODE, 9, True)

    def test_no_rule_makes_it_count(self) -> None:
        policy = a_policy(agent=True, rules=(Rule("Fail", exit_codes=(76,)),))
        status = an_open_incident(Cause.FENCED, self.ENDED[0], *self.ENDED, policy=policy).status()
        assert status.phase is not Phase.FAILED
        assert status.incidents[-1].charged is False

    def test_without_the_agent_76_is_an_exit_code_like_any_other(self) -> None:
        opened = a_running_gang(self.ENDED[0], policy=a_policy()).status().incident
        assert opened is not None
        assert opened.trigger is Cause.EXIT_CODE
        opened = a_running_gang(self.ENDED[0], policy=a_policy(agent=True)).status().incident
        assert opened is not None
        assert opened.trigger is Cause.FENCED


def test_an_observation_with_a_report_can_be_decided_again_from_its_log() -> None:
    o = running().o
    assert observation_from_json(observation_to_json(o)) == o
    assert decide(observation_from_json(observation_to_json(o))) == decide(o)
