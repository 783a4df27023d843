from __future__ import annotations

from typing import Any

import pytest

from meshwright.placement.supply.eligibility import NodeRules, Obstacle
from meshwright.placement.supply.nodes import NodeCapacity
from tests.controller.placement.clusters import a_node


def tolerating(**toleration: str) -> NodeRules:
    return NodeRules.parse({"tolerations": [toleration]})


@pytest.mark.parametrize(
    ("toleration", "tolerated"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "a100", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "a100"}, True),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "value": "h100"}, False),
        ({"key": "gpu"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Gt", "value": "a100"}, False),
    ],
)
def test_a_taint_is_tolerated_by_key_value_and_effect(toleration: dict[str, str], tolerated: bool) -> None:
    node = a_node("n", taints=["gpu=a100:NoSchedule"])
    assert tolerating(**toleration).obstacle(node) == (None if tolerated else Obstacle.TAINTED)


@pytest.mark.parametrize(
    ("effect", "obstacle"),
    [("NoSchedule", Obstacle.TAINTED), ("NoExecute", Obstacle.TAINTED), ("PreferNoSchedule", None)],
)
def test_only_hard_taints_keep_pods_out(effect: str, obstacle: Obstacle | None) -> None:
    assert NodeRules().obstacle(a_node("n", taints=[f"k:{effect}"])) == obstacle


def test_every_taint_needs_a_toleration() -> None:
    node = a_node("n", taints=["a:NoSchedule", "b:NoExecute"])
    assert tolerating(key="a", operator="Exists").obstacle(node) == Obstacle.TAINTED
    both = NodeRules.parse({"tolerations": [{"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Exists"}]})
    assert both.obstacle(node) is None


CORDON = "node.kubernetes.io/unschedulable:NoSchedule"


@pytest.mark.parametrize(
    "node",
    [a_node("n", cordoned=True), a_node("n", taints=[CORDON]), a_node("n", cordoned=True, taints=[CORDON])],
    ids=["the field", "the taint", "both"],
)
def test_a_cordon_keeps_pods_out_unless_they_tolerate_it(node: Any) -> None:
    assert NodeRules().obstacle(node) == Obstacle.CORDONED
    assert tolerating(key="node.kubernetes.io/unschedulable", operator="Exists").obstacle(node) is None


@pytest.mark.parametrize("ready", ["False", "Unknown"])
def test_a_node_that_is_not_ready_takes_nobody(ready: str) -> None:
    assert tolerating(operator="Exists").obstacle(a_node("n", ready=ready)) == Obstacle.NOT_READY


def test_a_node_that_is_being_deleted_or_has_never_reported_takes_nobody() -> None:
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    leaving = {"metadata": {"name": "n", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": status}
    assert not NodeCapacity.parse(leaving).ready
    assert not NodeCapacity.parse({"metadata": {"name": "n"}}).ready


NODE = a_node("n1", labels={"zone": "a", "disk": "ssd", "gen": "12", "odd": "12x"})


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ({}, True),
        ({"zone": "a"}, True),
        ({"zone": "a", "disk": "ssd"}, True),
        ({"zone": "a", "disk": "hdd"}, False),
        ({"zone": "b"}, False),
        ({"x": ""}, False),
    ],
)
def test_a_node_selector_wants_every_label(selector: dict[str, str], matches: bool) -> None:
    assert (NodeRules.parse({"nodeSelector": selector}).obstacle(NODE) is None) is matches


def affine(*terms: dict[str, Any]) -> NodeRules:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return NodeRules.parse({"affinity": {"nodeAffinity": required}})


def requires(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (requires("zone", "In", "a", "b"), True),
        (requires("zone", "In", "b"), False),
        (requires("none", "In", "a"), False),
        (requires("zone", "NotIn", "b"), True),
        (requires("zone", "NotIn", "a", "b"), False),
        (requires("none", "NotIn", "a"), True),
        (requires("zone", "Exists"), True),
        (requires("none", "Exists"), False),
        (requires("zone", "DoesNotExist"), False),
        (requires("none", "DoesNotExist"), True),
        (requires("gen", "Gt", "11"), True),
        (requires("gen", "Gt", "12"), False),
        (requires("gen", "Gt", "9"), True),
        (requires("gen", "Lt", "13"), True),
        (requires("gen", "Lt", "12"), False),
        (requires("gen", "Lt", "9"), False),
        (requires("none", "Gt", "0"), False),
        (requires("none", "Lt", "0"), False),
        (requires("odd", "Gt", "0"), False),
        (requires("gen", "Gt", "x"), False),
        (requires("gen", "Gt", "1", "2"), False),
        (requires("gen", "Resembles", "12"), False),
    ],
)
def test_node_affinity_operators(requirement: dict[str, Any], matches: bool) -> None:
    assert (affine({"matchExpressions": [requirement]}).obstacle(NODE) is None) is matches


@pytest.mark.parametrize(
    ("requirement", "matches"),
    [
        (requires("metadata.name", "In", "n1"), True),
        (requires("metadata.name", "In", "n2"), False),
        (requires("metadata.name", "NotIn", "n2"), True),
        (requires("metadata.name", "NotIn", "n1"), False),
        (requires("metadata.name", "Exists"), False),
        (requires("metadata.uid", "NotIn", "n2"), False),
    ],
)
def test_node_affinity_by_field(requirement: dict[str, Any], matches: bool) -> None:
    assert (affine({"matchFields": [requirement]}).obstacle(NODE) is None) is matches


ZONE_A, ZONE_B, HDD = requires("zone", "In", "a"), requires("zone", "In", "b"), requires("disk", "In", "hdd")
NAMED = requires("metadata.name", "In", "n1")


@pytest.mark.parametrize(
    ("terms", "matches"),
    [
        ([{"matchExpressions": [ZONE_B]}, {"matchExpressions": [ZONE_A]}], True),
        ([{"matchExpressions": [ZONE_A, HDD]}], False),
        ([{"matchExpressions": [ZONE_A], "matchFields": [NAMED]}], True),
        ([{"matchExpressions": [ZONE_B], "matchFields": [NAMED]}], False),
        ([{}], False),
        ([{}, {"matchExpressions": [ZONE_A]}], True),
        ([], False),
    ],
    ids=[
        "terms are alternatives",
        "conditions add up",
        "fields add up",
        "fields replace nothing",
        "an empty term matches nothing",
        "beside another",
        "no terms match nothing",
    ],
)
def test_node_affinity_terms(terms: list[dict[str, Any]], matches: bool) -> None:
    assert (affine(*terms).obstacle(NODE) is None) is matches


def test_selector_and_affinity_must_both_hold() -> None:
    spec = {"nodeSelector": {"zone": "b"}, "affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [ZONE_A]}]},
        "preferredDuringSchedulingIgnoredDuringExecution": []}}}  # fmt: skip
    assert NodeRules.parse(spec).obstacle(NODE) == Obstacle.UNWANTED


def test_a_preference_excludes_no_node() -> None:
    preferred = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {}}]}
    assert NodeRules.parse({"affinity": {"nodeAffinity": preferred}}).obstacle(NODE) is None
