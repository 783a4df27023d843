"""The launch plan as text: equal plans have equal bytes, and versions meet."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright_api.errors import PlanTooNew, PlanUnreadable
from meshwright_api.launch_plan import VERSION, Fence, JobRef, LaunchPlan, Rendezvous, Replacement, RolePlan
from meshwright_api.names import pod_name


def a_plan(**fields: object) -> LaunchPlan:
    pattern = pod_name("job", "uid", "worker", 7, 9).replace("-7-9", "-{index}-{incarnation}")
    role = RolePlan(name="worker", replicas=25_000, processes_per_pod=8, first_rank=0, host_pattern=pattern)
    plan = LaunchPlan(
        job=JobRef(name="job", namespace="default", uid="uid"),
        attempt=3,
        incarnation=2,
        roles=(role,),
        world_size=200_000,
        rendezvous=Rendezvous(id="uid-2", host="host-0", port=29_500),
        fence=Fence(attempt=3, base="step-100.a2"),
    )
    return plan.model_copy(update=fields)


def test_it_comes_back_as_it_went() -> None:
    plan = a_plan(
        trainer={"model": {"name": "gpt3"}}, replacements=(Replacement(role="worker", index=1, incarnation=5),)
    )
    assert LaunchPlan.from_json(plan.to_json()) == plan
    assert LaunchPlan.from_json(plan.to_json().encode()).to_json() == plan.to_json()


def test_its_words_are_camel_case() -> None:
    assert {"minReader", "worldSize", "rendezvous", "fence"} <= set(json.loads(a_plan().to_json()))


def test_its_size_does_not_grow_with_the_pods() -> None:
    assert len(a_plan().to_json()) < 1024


def test_hosts_are_the_names_of_the_pods() -> None:
    plan = a_plan(replacements=(Replacement(role="worker", index=4, incarnation=6),))
    assert plan.host("worker", 24_999) == pod_name("job", "uid", "worker", 24_999, 2)
    assert plan.host("worker", 4) == pod_name("job", "uid", "worker", 4, 6)
    for role, index in (("worker", 25_000), ("worker", -1), ("server", 0)):
        with pytest.raises(KeyError, match=f"no pod {index} of role"):
            plan.host(role, index)


def test_a_newer_writer_may_add_words() -> None:
    document = json.loads(a_plan().to_json()) | {"version": VERSION + 1, "spares": [1], "minReader": VERSION}
    document["roles"][0]["color"] = "red"
    assert LaunchPlan.from_json(json.dumps(document)).roles == a_plan().roles


def test_a_plan_that_would_be_misunderstood_is_refused() -> None:
    document = json.loads(a_plan().to_json()) | {"minReader": VERSION + 1}
    with pytest.raises(PlanTooNew, match=f"needs a reader of version {VERSION + 1}, this one is {VERSION}"):
        LaunchPlan.from_json(json.dumps(document))


@settings(deadline=None)
@given(st.text() | st.binary() | st.sampled_from(["null", "[]", "{}", '{"minReader": "x"}', "[" * 100_000]))
def test_what_is_no_plan_is_said_to_be_none(text: str | bytes) -> None:
    with pytest.raises(PlanUnreadable):
        LaunchPlan.from_json(text)
