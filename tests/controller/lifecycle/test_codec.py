"""Observations and decisions as JSON: what was logged is decided again, offline, to the same end."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from meshwright.lifecycle.codec import decision_to_json, observation_from_json, observation_to_json
from meshwright.lifecycle.decide import decide
from meshwright.lifecycle.model import Identity, Job, Observation, Offer, Pod, PodState, Policy, RoleSize, Rule
from meshwright_api.status import (
    Cause,
    Condition,
    Culprit,
    Incident,
    OpenIncident,
    Phase,
    PodCounts,
    RoleIndexes,
    TrainingJobStatus,
)
from tests.controller.lifecycle.gangs import T0, a_new_job, a_pod, a_policy, a_running_gang, an_open_incident, failed

seconds = st.integers(0, 100_000).map(lambda n: T0 + timedelta(seconds=n))
moments = st.datetimes(datetime(2026, 1, 1), datetime(2026, 1, 2), timezones=st.just(UTC))
words = st.text(max_size=8)
roles = st.sampled_from(["worker", "server"])
counts = st.integers(0, 3)

identities = st.builds(Identity, role=roles, index=counts, incarnation=counts)
pods = st.builds(
    Pod,
    name=words,
    uid=words,
    identity=identities,
    state=st.sampled_from(PodState),
    node=st.sampled_from(["", "a", "b"]),
    created_at=st.none() | seconds,
    stop_requested_at=st.none() | seconds,
    finished_at=st.none() | seconds,
    exit_code=st.none() | st.integers(-1, 255),
    reason=st.sampled_from(["", "Error", "OOMKilled", "Evicted", "OutOfcpu"]),
    disruption=st.sampled_from(["", "PreemptionByScheduler"]),
    waiting=words,
    last_words=words,
    image_id=words,
)
rules = st.builds(
    Rule,
    action=st.sampled_from(["Restart", "RestartFree", "Fail"]),
    role=st.sampled_from(["", "worker"]),
    exit_codes=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    reasons=st.lists(st.sampled_from(["Error", "Evicted"]), max_size=1).map(tuple),
)
policies = st.builds(
    Policy,
    roles=st.lists(st.builds(RoleSize, roles, st.integers(1, 3), counts), min_size=1, max_size=2).map(tuple),
    suspend=st.booleans(),
    max_restarts=counts,
    max_disruptions=counts,
    rules=st.lists(rules, max_size=2).map(tuple),
    force_delete_on_lost_node=st.booleans(),
    ttl_seconds=st.none() | counts,
    active_deadline_seconds=st.none() | st.integers(1, 100_000),
    clean_pods=st.sampled_from(["Running", "All", "None"]),
    success=st.sampled_from(["AllWorkers", "Rank0"]),
    mesh=words,
)
culprits = st.builds(Culprit, pod=words, role=roles, index=counts, exit_code=st.none() | counts, last_words=words)
open_incidents = st.builds(
    OpenIncident, attempt=counts, openedAt=seconds, trigger=st.sampled_from(Cause), evidence=culprits
)
incidents = st.builds(
    Incident,
    attempt=counts,
    trigger=st.sampled_from(Cause),
    cause=st.sampled_from(Cause),
    charged=st.booleans(),
    action=st.sampled_from(["Restart", "RestartFree", "Fail"]),
    culprit=culprits,
    openedAt=seconds,
    judgedAt=seconds,
    seconds_lost=st.none() | counts,
)
conditions = st.builds(
    Condition,
    type=st.sampled_from(["Running", "Suspending"]),
    status=st.sampled_from(["True", "False"]),
    reason=words,
    message=words,
    lastTransitionTime=seconds,
)
stored_times = st.lists(seconds, max_size=2).map(tuple)
statuses = st.builds(
    TrainingJobStatus,
    phase=st.none() | st.sampled_from(Phase),
    attempt=counts,
    incarnation=counts,
    planned=counts,
    launched=counts,
    plan_sha256=st.sampled_from(["", "p"]),
    incident=st.none() | open_incidents,
    incidents=st.lists(incidents, max_size=2).map(tuple),
    charged_restarts=stored_times,
    disruptions=stored_times,
    succeeded=st.lists(st.builds(RoleIndexes, role=roles, indexes=st.just("0-1")), max_size=1).map(tuple),
    pods=st.builds(PodCounts, desired=counts, running=counts),
    admitted_time=st.none() | seconds,
    active_since=st.none() | seconds,
    completion_time=st.none() | seconds,
    conditions=st.lists(conditions, max_size=2, unique_by=lambda c: c.type).map(tuple),
)
jobs = st.builds(
    Job,
    name=words,
    namespace=words,
    uid=words,
    generation=counts,
    resource_version=words,
    policy=st.none() | policies,
    problem=words,
    deleting=st.booleans(),
)
observations = st.builds(
    Observation,
    now=moments,
    job=jobs,
    status=statuses,
    pods=st.lists(pods, max_size=4).map(tuple),
    pods_confirmed=st.booleans(),
    vanished=st.frozensets(identities, max_size=2),
    lost_nodes=st.frozensets(st.sampled_from(["a", "b"])),
    plan_stored=st.sampled_from(["", "p"]),
    plan_in_hand=st.sampled_from(["", "p"]),
    offer=st.none() | st.builds(Offer, plan_sha256=st.sampled_from(["", "q"]), reason=words, message=words),
    undisturbed_since=st.none() | moments,
    refusal=words,
    progress_due=st.booleans(),
)


@settings(max_examples=60, deadline=None)
@given(observations)
def test_an_observation_survives_the_round_trip(observation: Observation) -> None:
    text = observation_to_json(observation)
    assert "\n" not in text
    assert observation_from_json(text) == observation


def outcome(observation: Observation) -> str:
    """The decision as text; of observations that no job can be in, that they are refused."""
    try:
        return decision_to_json(decide(observation))
    except AssertionError as error:
        return f"{type(error).__name__}: {error}"


@settings(max_examples=60, deadline=None)
@given(observations)
def test_a_logged_observation_is_decided_alike(observation: Observation) -> None:
    assert outcome(observation_from_json(observation_to_json(observation))) == outcome(observation)


SCENES = {
    "a new job": a_new_job(),
    "suspended": a_new_job(a_policy(suspend=True)),
    "running": a_running_gang(),
    "failing": a_running_gang(failed(a_pod(1), last_words="é\n\u2028 end")),
    "missing": a_running_gang().but(pods=(a_pod(0),), vanished=frozenset({Identity("worker", 1, 1)})),
    "judging": an_open_incident(Cause.EXIT_CODE, None, failed(a_pod(0), when=90)),
    "stopping": an_open_incident(Cause.EXIT_CODE, None, a_pod(1)),
}


@pytest.mark.parametrize("scene", SCENES)
def test_real_scenes_are_decided_alike(scene: str) -> None:
    o = SCENES[scene].o
    assert decide(observation_from_json(observation_to_json(o))) == decide(o)


def test_a_decision_is_one_line_that_says_why_and_what() -> None:
    text = decision_to_json(SCENES["stopping"].decide())
    told = json.loads(text)
    assert "\n" not in text
    assert told["actions"] == [{"name": "job-worker-1-1", "uid": "pod-1-1", "grace_seconds": 30}]
    assert "stopping 1 pods" in told["why"]


def test_names_and_times_are_those_of_the_api() -> None:
    told = json.loads(observation_to_json(SCENES["running"].o))
    assert told["status"]["planSHA256"] == "plan-1"
    assert told["status"]["startTime"] == "2026-01-01T00:00:00Z"


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"now": "yesterday"}', "null"])
def test_what_is_no_observation_is_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        observation_from_json(text)
