from __future__ import annotations

import itertools
from collections.abc import Iterable

import pytest

from meshwright.cluster.api import ApiServer
from meshwright.cluster.errors import NotLeading
from meshwright.cluster.permissions import PERMISSIONS, Answers, Permission, Scope, check, explain, needed
from tests.controller.cluster.stub_kube import StubKube, status


def rights(
    namespaces: Iterable[str] = (), *, capacity_reader: bool = True, domains: bool = False
) -> tuple[Permission, ...]:
    own, lease = "meshwright", "operator"
    return needed(namespaces, capacity_reader=capacity_reader, own_namespace=own, lease_name=lease, domains=domains)


def test_cluster_wide_every_right_is_asked_once() -> None:
    asked = rights(domains=True)
    assert len(asked) == len(set(asked))
    assert {right.namespace for right in asked if right.scope is not Scope.OWN} == {""}
    assert {(right.verb, right.resource) for right in asked} == {(right.verb, right.resource) for right in PERMISSIONS}


def test_namespace_by_namespace() -> None:
    asked = rights(["a", "b"], capacity_reader=False)
    asked = tuple(right for right in asked if right.scope is not Scope.AGENTS)
    assert {right.namespace for right in asked} == {"a", "b", "meshwright"}
    assert {right.namespace for right in asked if right.resource == "pods" and right.verb == "create"} == {"a", "b"}
    assert not [right for right in asked if right.resource == "nodes"]


def test_capacity_is_read_cluster_wide_even_when_jobs_are_not() -> None:
    asked = rights(["a"])
    cluster_wide = {(right.verb, right.resource) for right in asked if not right.namespace}
    assert cluster_wide == {
        ("list", "pods"),
        ("watch", "pods"),
        ("list", "priorityclasses"),
        ("list", "nodes"),
        ("watch", "nodes"),
        ("create", "tokenreviews"),
    }


def test_the_lease_is_asked_for_by_name_in_the_operators_namespace() -> None:
    lease = {right for right in rights() if right.resource == "leases"}
    assert {(right.verb, right.name, right.namespace) for right in lease} == {
        ("get", "operator", "meshwright"),
        ("update", "operator", "meshwright"),
    }


def test_the_one_secret_is_asked_for_by_name_and_never_created() -> None:
    secret = {right for right in rights() if right.resource == "secrets"}
    assert {(right.verb, right.name, right.namespace) for right in secret} == {
        ("get", "operator-keys", "meshwright"),
        ("update", "operator-keys", "meshwright"),
    }


def test_without_heartbeats_there_are_no_tokens_to_review_and_no_keys() -> None:
    asked = needed((), capacity_reader=True, own_namespace="meshwright", lease_name="operator", heartbeats=False)
    assert not {right.resource for right in asked} & {"tokenreviews", "secrets"}


def test_without_isolation_network_policies_are_not_touched() -> None:
    asked = needed(["a"], capacity_reader=True, own_namespace="meshwright", lease_name="operator", isolation=False)
    assert "networkpolicies" not in {right.resource for right in asked}
    policies = {(r.verb, r.namespace) for r in rights(["a", "b"]) if r.resource == "networkpolicies"}
    assert policies == {(verb, namespace) for verb in ("get", "create", "update") for namespace in ("a", "b")}


def test_without_compute_domains_jobs_are_not_patched() -> None:
    asked = needed((), capacity_reader=True, own_namespace="meshwright", lease_name="operator")
    assert "computedomains" not in {right.resource for right in asked}
    patched = {(r.resource, r.subresource) for r in asked if r.verb == "patch"}
    assert patched == {("trainingjobs", "status"), ("events", "")}


@pytest.mark.parametrize("forbidden", ["*", "pods/exec", "pods/log"])
def test_what_the_operator_never_needs(forbidden: str) -> None:
    resource, _, subresource = forbidden.partition("/")
    assert not [r for r in PERMISSIONS if r.resource == resource and (not subresource or r.subresource == subresource)]


def test_nodes_are_only_read() -> None:
    assert {r.verb for r in PERMISSIONS if r.resource == "nodes"} <= {"get", "list", "watch"}


async def test_missing_rights_are_found_by_asking_the_server(api: ApiServer, stub: StubKube) -> None:
    def fence() -> None:
        raise NotLeading("asking is no write")

    api.before_write = fence
    assert await check(api, rights()) == Answers()

    stub.denied = {("create", "pods"), ("patch", "trainingjobs")}
    answers = await check(api, rights())
    assert not answers.unanswered
    assert [str(right) for right in answers.denied] == [
        "patch trainingjobs/status.meshwright.dev cluster-wide",
        "create pods cluster-wide",
    ]
    asked = [seen.body["spec"]["resourceAttributes"] for seen in stub.requests("POST")]
    assert {"verb": "patch", "group": "meshwright.dev", "resource": "trainingjobs", "subresource": "status"} in asked
    lease = {"resource": "leases", "group": "coordination.k8s.io", "namespace": "meshwright", "name": "operator"}
    assert {"verb": "update", **lease} in asked


async def test_a_server_too_slow_for_all_questions_is_asked_fewer_each_time(api: ApiServer, stub: StubKube) -> None:
    numbers = itertools.count()
    stub.fault = lambda _: status(503) if next(numbers) % 2 else None
    left, rounds = rights(), 0
    while left:
        answers = await check(api, left)
        assert not answers.denied
        assert bool(answers.error) == bool(answers.unanswered)
        assert len(answers.unanswered) <= (len(left) + 1) // 2
        left, rounds = answers.unanswered, rounds + 1
    assert rounds > 2


def test_what_to_do_is_said() -> None:
    lacking = [Permission("create", "", "pods", "", Scope.JOBS, namespace="team-a")]
    text = explain(lacking, namespaced=True)
    assert "create pods in namespace team-a" in text
    assert "Role in each served namespace" in text
    assert "ClusterRole" in explain(lacking, namespaced=False)
