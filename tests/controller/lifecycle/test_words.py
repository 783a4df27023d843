"""Small pieces: index ranges, events, nodes to avoid, and a spec as decisions read it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.lifecycle.announce import announcements
from meshwright.lifecycle.avoid import AVOID_SECONDS, nodes_to_avoid
from meshwright.lifecycle.conditions import find
from meshwright.lifecycle.model import Rule
from meshwright.lifecycle.policy import readable_job
from meshwright.lifecycle.ranges import format_ranges, parse_ranges
from meshwright_api import names
from meshwright_api.job import parse_job
from meshwright_api.status import Cause, TrainingJobStatus
from tests.controller.lifecycle.gangs import Scene, at, running_status
from tests.controller.lifecycle.life import Life, a_life, a_running_life


@pytest.mark.parametrize(
    ("indexes", "text"), [((), ""), ((3,), "3"), ((0, 1, 2), "0-2"), ((7, 0, 1, 1, 3), "0-1,3,7"), ((9, 10), "9-10")]
)
def test_indexes_are_written_as_ranges(indexes: tuple[int, ...], text: str) -> None:
    assert format_ranges(indexes) == text


@given(st.frozensets(st.integers(0, 200)))
def test_ranges_are_read_as_they_were_written(indexes: frozenset[int]) -> None:
    assert parse_ranges(format_ranges(indexes)) == indexes


def test_a_gang_of_25000_that_succeeds_takes_one_range() -> None:
    assert format_ranges(range(25_000)) == "0-24999"


@pytest.mark.parametrize("text", ["a", "1-b", "-"])
def test_what_are_no_ranges_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_ranges(text)


# --- events --------------------------------------------------------------------------------------------------------


def told(life: Life) -> list[tuple[str, str]]:
    """The kinds and reasons of all events of a life."""
    writes = [TrainingJobStatus(), *life.written]
    return [(event.kind, event.reason) for old, new in pairwise(writes) for event in announcements(old, new)]


def test_every_transition_is_told_once_and_pods_are_not() -> None:
    life = a_running_life(workers=8)
    life.fail(3, last_words="boom").restart()
    life.later(60)
    for index in range(8):
        life.succeed(index).settle()
    assert told(life) == [
        ("Normal", "Admitted"),
        ("Normal", "Starting"),
        ("Normal", "Running"),
        ("Warning", "Restarting"),
        ("Warning", "IncidentJudged"),
        ("Normal", "Admitted"),
        ("Normal", "Starting"),
        ("Normal", "Running"),
        ("Normal", "Succeeded"),
    ]


def test_a_judgement_names_the_pod_the_code_and_the_charge() -> None:
    life = a_running_life()
    life.fail(1, 9).restart()
    messages = [
        event.message
        for old, new in pairwise(life.written)
        for event in announcements(old, new)
        if event.reason == "IncidentJudged"
    ]
    assert len(messages) == 1
    assert "job-worker-1-1" in messages[0]
    assert "exit code 9" in messages[0]
    assert "charged" in messages[0]


def test_a_charge_that_is_taken_back_is_no_second_judgement() -> None:
    life = a_running_life()
    life.fail(0).restart()
    before = life.status
    life.later(30).lose("node-1").step()
    assert [event.reason for event in announcements(before, life.status)] == ["Restarting"]


def test_a_refused_pod_and_a_refused_spec_are_told_once() -> None:
    life = a_life()
    life.refusal = "exceeded quota"
    for _ in range(5):
        life.step()
    assert told(life).count(("Warning", names.REASON_POD_REFUSED)) == 1


def test_k42_a_plan_that_cannot_be_stored_is_told_in_the_servers_words() -> None:
    life = a_life().settle()
    scene = Scene(replace(life.observe(), status=life.status.model_copy(update={"launched": 0}), plan_stored=""))
    assert scene.decide().actions
    condition = find(scene.but(refusal="configmaps: exceeded quota").status(), names.RUNNING)
    assert condition is not None
    assert (condition.reason, condition.message) == (names.REASON_POD_REFUSED, "configmaps: exceeded quota")
    assert scene.but(refusal="configmaps: exceeded quota").then().decide().actions, "it goes on being tried"


# --- nodes to avoid ------------------------------------------------------------------------------------------------


def test_a_node_that_was_lost_is_avoided_for_an_hour() -> None:
    life = a_running_life()
    life.lose("node-1").settle().stops_end().later(15).settle()
    assert nodes_to_avoid(life.status, life.now) == {"node-1"}
    judged = life.last.judged_at
    assert nodes_to_avoid(life.status, judged.fromtimestamp(judged.timestamp() + AVOID_SECONDS, judged.tzinfo)) == set()


def test_a_failure_of_a_pods_own_says_nothing_against_its_node() -> None:
    life = a_running_life()
    life.fail(0).restart()
    assert nodes_to_avoid(life.status, life.now) == frozenset()


def test_a_job_without_incidents_avoids_nothing() -> None:
    assert nodes_to_avoid(running_status(), at(0)) == frozenset()
    assert Cause.NODE_LOST.value == "NodeLost"


# --- a spec as decisions read it -----------------------------------------------------------------------------------


def an_object(**spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "python", "command": ["true"]}]}}
    return {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u-1", "generation": 4, "resourceVersion": "77"},
        "spec": {"roles": [{"name": "worker", "replicas": 2, "template": template}]} | spec,
    }


def test_defaults_are_those_of_the_api() -> None:
    job = readable_job(parse_job(an_object()))
    policy = job.policy
    assert policy is not None
    assert (job.name, job.namespace, job.uid, job.generation, job.resource_version) == ("j", "ns", "u-1", 4, "77")
    assert (policy.max_restarts, policy.window_seconds, policy.max_disruptions) == (10, 86_400, 100)
    assert (policy.evidence_seconds, policy.startup_deadline_seconds, policy.bind_deadline_seconds) == (15, 1800, 60)
    assert (policy.ttl_seconds, policy.active_deadline_seconds, policy.suspend) == (None, None, False)
    assert (policy.clean_pods, policy.success, policy.force_delete_on_lost_node) == ("Running", "AllWorkers", False)
    assert [(role.name, role.replicas, role.grace_seconds) for role in policy.roles] == [("worker", 2, 30)]


def test_every_field_of_the_policy_is_read() -> None:
    obj = an_object(
        suspend=True,
        ttlSecondsAfterFinished=5,
        activeDeadlineSeconds=6,
        cleanPodPolicy="All",
        successPolicy="Rank0",
        failurePolicy={
            "maxRestarts": 1,
            "windowSeconds": 3600,
            "maxDisruptions": 3,
            "evidenceSeconds": 4,
            "forceDeleteOnLostNode": True,
            "rules": [{"role": "worker", "exitCodes": [3], "reasons": ["Error"], "action": "Fail"}],
        },
        health={"startupDeadlineSeconds": 700, "bindDeadlineSeconds": 80},
    )
    obj["spec"]["roles"][0]["template"]["spec"]["terminationGracePeriodSeconds"] = 120
    policy = readable_job(parse_job(obj)).policy
    assert policy is not None
    assert (policy.max_restarts, policy.window_seconds, policy.max_disruptions, policy.evidence_seconds) == (
        1,
        3600,
        3,
        4,
    )
    assert policy.rules == (Rule("Fail", "worker", (3,), ("Error",)),)
    assert (policy.startup_deadline_seconds, policy.bind_deadline_seconds) == (700, 80)
    assert (policy.ttl_seconds, policy.active_deadline_seconds, policy.suspend) == (5, 6, True)
    assert (policy.clean_pods, policy.success, policy.force_delete_on_lost_node) == ("All", "Rank0", True)
    assert policy.grace_of("worker") == 120
    assert policy.grace_of("nobody") == 30
