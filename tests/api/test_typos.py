"""A key that nobody knows is refused by name, wherever it stands; it is neither dropped nor kept in silence."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright_api import problems
from meshwright_api.keys import LIST, KnownKeys, known_keys
from tests.api.client import Client
from tests.api.jobs import Json, a_job, a_trained_job, changed

pytestmark = pytest.mark.cluster

REQUIRED: dict[tuple[str, ...], Json] = {
    ("volumes", LIST): {"name": "v", "mountPath": "/v", "emptyDir": {}},
    ("failurePolicy", "rules", LIST): {"action": "Fail", "exitCodes": [3]},
    ("placement", "constraints", LIST): {"axis": "pods", "within": "leaf"},
    ("trainer", "data", "sources", LIST): {"source": "/data"},
    ("trainer", "memory", "tiers", LIST): {"name": "Host"},
    ("trainer", "code"): {"path": "/code"},
}
"""What an object needs beside the typo."""


def with_typo(known: KnownKeys) -> Json:
    """A job that can be run but for one unknown key in the object."""
    job = a_trained_job() if known.path[:1] == ("trainer",) else a_job()
    at: Any = job["spec"]
    for i, step in enumerate(known.path):
        empty: Any = [{}] if known.path[i + 1 : i + 2] == (LIST,) else {}
        at = at[0] if step == LIST else at.setdefault(step, empty)
    at |= REQUIRED.get(known.path, {})
    at["tpyo"] = 1
    return job


@pytest.mark.parametrize("known", known_keys(), ids=lambda known: ".".join(known.path) or "spec")
def test_a_typo_is_named_with_what_is_known_there(client: Client, known: KnownKeys) -> None:
    job = with_typo(known)
    where = ".".join(("spec", *known.path, "tpyo")).replace(f".{LIST}", LIST)

    answer = client.create(job, dry_run=True)
    later = known.path[:1] == ("elastic",) or "tiers" in known.path
    if later:  # the schema's rules come before any policy, and these sections are refused as a whole for now
        assert "not part of this version" in answer.message
    else:
        assert not answer.allowed
        assert f"{where}: no such field; known here: {', '.join(known.keys)}" in answer.message

    own = problems(job["spec"], "job")
    assert [p.field.replace("[0]", LIST) for p in own] == [where]
    assert all(key in own[0].message for key in known.keys)


@pytest.mark.parametrize(("section", "typo"), [("failurePolicy", "maxRestart"), ("health", "bindDeadline")])
def test_the_controller_guesses_what_was_meant(section: str, typo: str) -> None:
    said = problems(changed(a_job(), **{section: {typo: 1}})["spec"], "job")[0]
    assert f"did you mean {typo}s" in said.message or f"did you mean {typo}Seconds" in said.message


def test_an_unknown_key_is_not_pruned_before_the_policy_sees_it(client: Client) -> None:
    """Clients that do not validate strictly would otherwise lose it without a word."""
    job = a_job(failurePolicy={"maxRestart": 3})
    answer = client.call("POST", "/apis/meshwright.dev/v1alpha1/namespaces/default/trainingjobs"
                         "?dryRun=All&fieldValidation=Ignore", job)  # fmt: skip
    assert answer.code == 422
    assert "spec.failurePolicy.maxRestart: no such field" in answer.message


def test_what_is_not_ours_keeps_its_own_keys(client: Client) -> None:
    """A pod template, a volume's source: the API server judges them when pods are made."""
    job = a_job(volumes=[{"name": "v", "mountPath": "/v", "csi": {"driver": "d", "anything": {"a": 1}}}])
    container = {"name": "trainer", "image": "x", "securityContext": {"runAsUser": 1}, "stdin": True}
    job["spec"]["roles"][0]["template"]["spec"] |= {"schedulerName": "mine", "containers": [container]}
    answer = client.create(job, dry_run=True)
    assert answer.allowed, answer.message
    assert answer.body["spec"] == job["spec"]
    assert problems(job["spec"], "job") == ()
