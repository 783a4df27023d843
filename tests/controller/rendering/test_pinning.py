"""Pinning narrows a pod to one node, and never widens what the user allowed."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from meshwright.placement.supply.eligibility import NodeRules
from meshwright.rendering.gang import pod_manifest
from meshwright.rendering.pinning import REQUIRED, pinned
from tests.controller.placement.clusters import a_few, a_node
from tests.controller.rendering.jobs import a_job, frozen


def pin_to(node: str) -> dict[str, Any]:
    return {"key": "metadata.name", "operator": "In", "values": [node]}


def test_without_affinity_the_node_is_the_only_term() -> None:
    expected = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": [pin_to("n1")]}]}}}
    assert pinned(None, "n1") == pinned({}, "n1") == pinned({"nodeAffinity": {}}, "n1") == expected


def test_the_node_is_added_to_every_term_and_other_affinity_stays() -> None:
    a, b = {"key": "a", "operator": "Exists"}, {"key": "metadata.name", "operator": "NotIn", "values": ["x"]}
    affinity = {
        "podAffinity": {"kept": 1},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": ["kept"],
            REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [a]}, {"matchFields": [b]}, {}]},
        },
    }
    assert pinned(affinity, "n1") == {
        "podAffinity": {"kept": 1},
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": ["kept"],
            REQUIRED: {
                "nodeSelectorTerms": [
                    {"matchExpressions": [a], "matchFields": [pin_to("n1")]},
                    {"matchFields": [b, pin_to("n1")]},
                    {},
                ]
            },
        },
    }


def test_each_pod_is_pinned_to_its_own_node_or_to_none() -> None:
    plan = frozen(a_job())
    for index in (0, 1):
        affinity = pod_manifest(plan, "worker", index)["spec"]["affinity"]
        assert affinity == pinned(None, f"node-{index}")
    assert "affinity" not in pod_manifest(frozen(a_job(), pinned=False), "worker", 0)["spec"]


NODES = [a_node(f"n{i}", labels={"a": str(i % 2), "b": str(i)}) for i in range(4)]
requirements = st.builds(
    lambda key, operator, values: {"key": key, "operator": operator, "values": values},
    st.sampled_from(["a", "b"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]),
    st.lists(st.sampled_from(["0", "1", "2"]), max_size=2),
)
fields = st.builds(
    lambda operator, node: {"key": "metadata.name", "operator": operator, "values": [node]},
    st.sampled_from(["In", "NotIn"]),
    st.sampled_from(["n0", "n1", "n2"]),
)
terms = st.lists(
    st.fixed_dictionaries(
        {},
        optional={
            "matchExpressions": st.lists(requirements, max_size=2),
            "matchFields": st.lists(fields, max_size=1),
        },
    ),
    max_size=3,
)


@a_few
@given(st.none() | terms, st.sampled_from(["n0", "n1", "n2", "n3"]))
def test_a_pinned_pod_goes_to_its_node_exactly_when_the_user_allowed_it(terms: Any, node: str) -> None:
    affinity = {} if terms is None else {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}
    before = NodeRules.parse({"affinity": affinity})
    after = NodeRules.parse({"affinity": pinned(affinity, node)})
    allowed = {n.name for n in NODES if before.obstacle(n) is None}
    assert {n.name for n in NODES if after.obstacle(n) is None} == allowed & {node}
