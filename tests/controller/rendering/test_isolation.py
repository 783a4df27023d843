"""Who may open a connection to a gang's pods: judged by an evaluator that knows only what NetworkPolicies mean.

Whether a cluster's network plugin enforces them is not for these tests to say; no node here has such a plugin.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from meshwright.rendering.gang import FrozenPlan, RenderSettings, pod_manifest
from tests.controller.rendering.jobs import a_job, a_role, a_trained_job, frozen

MONITORING = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
PROMETHEUS = MONITORING | {"podSelector": {"matchLabels": {"app": "prometheus"}}}


@dataclass(frozen=True)
class Endpoint:
    """A pod as the network knows it."""

    namespace: str
    labels: Mapping[str, str]
    ports: Mapping[int, str] = field(default_factory=dict)
    """Names of its ports."""


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    assert selector.keys() <= {"matchLabels"}, "the evaluator knows no other selectors"
    return all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())


def may_connect(policy: Mapping[str, Any], source: Endpoint, target: Endpoint, port: int) -> bool:
    """https://kubernetes.io/docs/concepts/services-networking/network-policies: what is not selected is open."""
    spec = policy["spec"]
    if target.namespace != policy["metadata"]["namespace"] or not matches(spec["podSelector"], target.labels):
        return True
    assert spec["policyTypes"] == ["Ingress"]

    def peer_is(peer: Mapping[str, Any]) -> bool:
        namespaces, pods = peer.get("namespaceSelector"), peer.get("podSelector")
        own = source.namespace == policy["metadata"]["namespace"]
        there = own if namespaces is None else matches(namespaces, {"kubernetes.io/metadata.name": source.namespace})
        return there and (pods is None or matches(pods, source.labels))

    def port_is(allowed: Mapping[str, Any]) -> bool:
        return allowed["protocol"] == "TCP" and allowed["port"] in (port, target.ports.get(port))

    return any(
        any(peer_is(peer) for peer in rule["from"])
        and ("ports" not in rule or any(port_is(allowed) for allowed in rule["ports"]))
        for rule in spec["ingress"]
    )


def policy_of(plan: FrozenPlan) -> Mapping[str, Any]:
    (found,) = [manifest for manifest in plan.objects if manifest["kind"] == "NetworkPolicy"]
    return found


def endpoint(plan: FrozenPlan, index: int, namespace: str = "team") -> Endpoint:
    pod = pod_manifest(plan, "worker", index)
    ports = {p["containerPort"]: p["name"] for c in pod["spec"]["containers"] for p in c.get("ports", ())}
    return Endpoint(namespace, pod["metadata"]["labels"], ports)


def test_a_gangs_pods_reach_each_other_on_every_port_in_every_incarnation() -> None:
    policy = policy_of(frozen(a_job(a_role(2))))
    pods = [endpoint(frozen(a_job(a_role(2)), incarnation=i), index) for i in (1, 2) for index in (0, 1)]
    assert all(may_connect(policy, a, b, port) for a in pods for b in pods for port in (1, 22_222, 65_535))


@pytest.mark.parametrize("port", [1, 9464, 29_500])
def test_nobody_else_reaches_them(port: int) -> None:
    plan, other = frozen(a_trained_job()), frozen(a_job(a_role(2), name="other", uid="another"))
    target = endpoint(plan, 0)
    strangers = [
        endpoint(other, 0),
        dataclasses.replace(endpoint(plan, 0), namespace="elsewhere"),
        Endpoint("team", {}),
        Endpoint("team", {"meshwright.dev/job": "demo"}),
        Endpoint("monitoring", {"app": "prometheus"}),
    ]
    assert not [who for who in strangers if may_connect(policy_of(plan), who, target, port)]


def test_pods_of_others_are_not_closed_by_it() -> None:
    policy = policy_of(frozen(a_job(a_role(2))))
    assert may_connect(policy, Endpoint("x", {}), Endpoint("team", {"meshwright.dev/job-uid": "another"}), 1)
    assert may_connect(policy, Endpoint("x", {}), dataclasses.replace(endpoint(frozen(a_job()), 0), namespace="x"), 1)


def test_scrapers_reach_the_metrics_and_nothing_else() -> None:
    plan = frozen(a_trained_job(), settings=RenderSettings(scrapers=(PROMETHEUS,)))
    target, prometheus = endpoint(plan, 0), Endpoint("monitoring", {"app": "prometheus"})
    metrics = next(number for number, name in target.ports.items() if name == "metrics")
    assert may_connect(policy_of(plan), prometheus, target, metrics)
    assert not may_connect(policy_of(plan), prometheus, target, metrics + 1)
    assert not may_connect(policy_of(plan), Endpoint("monitoring", {"app": "x"}), target, metrics)
    assert not may_connect(policy_of(plan), Endpoint("team", {"app": "prometheus"}), target, metrics)
    assert may_connect(policy_of(plan), target, target, metrics + 1)


def test_it_can_be_turned_off() -> None:
    assert frozen(a_job(), settings=RenderSettings(isolate=False)).objects == ()


def test_pods_on_the_hosts_network_get_none() -> None:
    """Their addresses are their nodes': the rest of the gang would not know them."""
    assert frozen(a_job(a_role(1, hostNetwork=True), a_role(1, name="ps"))).objects == ()


def test_it_lives_and_dies_with_its_job() -> None:
    metadata = policy_of(frozen(a_job()))["metadata"]
    assert [owner["uid"] for owner in metadata["ownerReferences"]] == [a_job().metadata.uid]


def test_the_hash_that_is_committed_covers_it() -> None:
    closed, open_ = frozen(a_job()), frozen(a_job(), settings=RenderSettings(isolate=False))
    assert closed.sha256 != open_.sha256
    again = FrozenPlan.load(closed.plan_config_map(), closed.placement_config_map())
    assert again.objects == closed.objects
