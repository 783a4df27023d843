"""Pods that want no other of their own kind on their node."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.placement.supply.apart import apart
from meshwright.placement.supply.requests import pod_requests
from meshwright.placement.supply.resources import NOTHING, Resources

LABELS = {"app": "train", "tier": "gpu"}
MINE = {"matchLabels": {"app": "train"}}


def pod(*terms: dict[str, Any], namespace: str = "team") -> dict[str, Any]:
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": list(terms)}}
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}], "affinity": affinity}
    return {"metadata": {"labels": LABELS, "namespace": namespace}, "spec": spec}


def term(selector: dict[str, Any] | None = MINE, *, key: str = "kubernetes.io/hostname", **more: Any) -> dict[str, Any]:
    return {"topologyKey": key, **({} if selector is None else {"labelSelector": selector}), **more}


@pytest.mark.parametrize(
    ("told", "kept_away"),
    [
        (term(), "pods with app=train"),
        (term({}), "other pods"),
        (term({"matchExpressions": [{"key": "app", "operator": "In", "values": ["train"]}]}), "pods with app=train"),
        (
            term({"matchExpressions": [{"key": "app", "operator": "In", "values": ["train", "serve"]}]}),
            "pods with app In serve, train",
        ),
        (term({"matchExpressions": [{"key": "tier", "operator": "Exists"}]}), "pods with tier Exists"),
        (term({"matchExpressions": [{"key": "x", "operator": "DoesNotExist"}]}), "pods with x DoesNotExist"),
        (term(matchLabelKeys=["tier"]), "pods with app=train, tier=gpu"),
        (term(matchLabelKeys=["nobody-has-it"]), "pods with app=train"),
        (term(namespaces=["other", "team"]), "pods with app=train"),
        (term(namespaceSelector={}), "pods with app=train"),
    ],
)
def test_a_term_that_the_pod_itself_meets_leaves_one_of_them_to_a_node(told: dict[str, Any], kept_away: str) -> None:
    assert apart(pod(told)) == Resources(other=((f"a node without {kept_away}", 1),))


@pytest.mark.parametrize(
    "told",
    [
        term({"matchLabels": {"app": "another"}}),
        term({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["train"]}]}),
        term({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}),
        term(None),
        term(key="topology.kubernetes.io/zone"),
        term(namespaces=["other"]),
        term(namespaceSelector={"matchLabels": {"team": "a"}}),
        term(mismatchLabelKeys=["tier"]),
    ],
)
def test_other_terms_are_left_to_the_scheduler(told: dict[str, Any]) -> None:
    assert apart(pod(told)) == NOTHING


def test_the_same_wish_in_other_words_is_the_same_wish() -> None:
    one = term({"matchLabels": {"tier": "gpu", "app": "train"}})
    other = term(
        {"matchLabels": {"app": "train"}, "matchExpressions": [{"key": "tier", "operator": "In", "values": ["gpu"]}]}
    )
    assert apart(pod(one)) == apart(pod(other)) == apart(pod(one, other))


def test_every_node_has_one_of_it_and_pods_that_do_not_ask_do_not_count() -> None:
    wanted = pod_requests(pod(term()))
    free = Resources(cpu=8000, pods=10)
    assert wanted.times_in(free, 5) == 1
    assert wanted.times_in(free - wanted, 5) == 0
    assert wanted.times_in(free - pod_requests(pod(term({"matchLabels": {"tier": "gpu"}}))), 5) == 1
    assert pod_requests(pod()).times_in(free - wanted, 50) == 7
    assert wanted.short_of(free) == ()
    assert wanted.short_of(free - wanted) == ("a node without pods with app=train",)
