"""First fit: the gang whole or not at all, never more than a node has, and only where its pods may run."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.placement.model import GangRequest, Placed, Snapshot
from meshwright.placement.solver import FirstFit
from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.resources import NOTHING, Resources
from tests.controller.placement import oracle
from tests.controller.placement.clusters import (
    a_few,
    a_gang,
    a_gang_pod,
    a_node,
    a_pod,
    a_reservation,
    a_role,
    a_snapshot,
    amount,
)

GPU_NODES = [a_node(f"n{i}", gpus=8) for i in range(4)]
TOLERANT = NodeRules.parse({"tolerations": [{"operator": "Exists"}]})


def place(gang: GangRequest, snapshot: Snapshot) -> dict[str, list[int]] | None:
    """Indexes of role `worker` by node; None if the gang was refused."""
    placed = FirstFit().place(gang, snapshot)
    if placed is None:
        return None
    found: dict[str, list[int]] = {}
    for (_, index), node in placed.nodes.items():
        found.setdefault(node, []).append(index)
    return {node: sorted(found[node]) for node in sorted(found)}


def test_consecutive_ranks_sit_together() -> None:
    gang = a_gang("u", a_role(5, gpus=4))
    assert place(gang, a_snapshot(reversed(GPU_NODES))) == {"n0": [0, 1], "n1": [2, 3], "n2": [4]}


def test_a_gang_that_does_not_fit_whole_gets_nothing() -> None:
    assert place(a_gang("u", a_role(4, gpus=8)), a_snapshot(GPU_NODES))
    assert place(a_gang("u", a_role(5, gpus=8)), a_snapshot(GPU_NODES)) is None


def test_no_pods_need_no_nodes() -> None:
    """K43: 0 replicas means none."""
    assert place(a_gang("u", a_role(0, gpus=99), a_role(0, "ps")), a_snapshot([])) == {}


@pytest.mark.parametrize(
    "fault",
    [
        {"cordoned": True},
        {"ready": "Unknown"},
        {"taints": ["k:NoSchedule"]},
        {"labels": {"pool": "b"}},
        {"gpus": 7},
        {"cpu": "900m"},
        {"memory": "1Mi"},
        {"pods": 0},
    ],
    ids=lambda fault: " ".join(fault),
)
def test_a_node_that_cannot_take_the_pod_is_passed_over(fault: dict[str, Any]) -> None:
    good: dict[str, Any] = {"gpus": 8, "labels": {"pool": "a"}}
    rules = NodeRules.parse({"nodeSelector": {"pool": "a"}})
    gang = a_gang("u", a_role(1, rules=rules, gpus=8, cpu=1, memory="1Gi"))
    assert place(gang, a_snapshot([a_node("n0", **{**good, **fault}), a_node("n1", **good)])) == {"n1": [0]}
    assert place(gang, a_snapshot([a_node("n0", **good), a_node("n1", **good)])) == {"n0": [0]}


def test_another_resource_that_a_node_lacks_keeps_pods_out() -> None:
    gang = a_gang("u", a_role(1, other={"rdma/ib": 1}))
    assert place(gang, a_snapshot([a_node("n0"), a_node("n1", other={"rdma/ib": 1})])) == {"n1": [0]}


def test_what_is_not_asked_for_may_be_overcommitted() -> None:
    snapshot = a_snapshot([a_node("n1", cpu=1, memory="1Gi", gpus=1)], [a_pod(cpu=4)])
    assert place(a_gang("u", a_role(1, gpus=1)), snapshot) == {"n1": [0]}


def test_pods_without_gpus_take_nodes_without_gpus_first() -> None:
    nodes = [a_node("a", gpus=8), a_node("b")]
    assert place(a_gang("u", a_role(1, cpu=1)), a_snapshot(nodes)) == {"b": [0]}
    assert place(a_gang("u", a_role(2, cpu=8)), a_snapshot(nodes)) == {"a": [1], "b": [0]}


def test_nodes_to_avoid_are_the_last_resort() -> None:
    snapshot = a_snapshot(GPU_NODES)
    assert place(a_gang("u", a_role(2, gpus=8), avoid=["n0", "n1"]), snapshot) == {"n2": [0], "n3": [1]}
    assert place(a_gang("u", a_role(3, gpus=8), avoid=["n0", "n1"]), snapshot) == {"n0": [2], "n2": [0], "n3": [1]}


def prefers(**nodes: str) -> dict[tuple[str, int], str]:
    return {("worker", int(index[1:])): node for index, node in nodes.items()}


def test_a_restarted_gang_keeps_its_nodes() -> None:
    places = {0: "n3", 1: "n1", 2: "n2"}
    snapshot = a_snapshot(GPU_NODES, [], [a_reservation("u", places, gpus=8)])
    gang = a_gang("u", a_role(3, gpus=8), prefer=prefers(_0="n3", _1="n1", _2="n2"))
    assert place(gang, snapshot) == {"n1": [1], "n2": [2], "n3": [0]}


def test_only_the_bad_node_is_swapped() -> None:
    gang = a_gang("u", a_role(3, gpus=8), avoid=["n1"], prefer=prefers(_0="n3", _1="n1", _2="n0"))
    assert place(gang, a_snapshot(GPU_NODES)) == {"n0": [2], "n2": [1], "n3": [0]}


def test_a_kept_place_is_not_given_to_a_pod_that_lost_its_own() -> None:
    nodes = [a_node("n0", gpus=8), a_node("n1", gpus=8, ready="False"), a_node("n2", gpus=8)]
    gang = a_gang("u", a_role(2, gpus=8), prefer=prefers(_0="n1", _1="n0"))
    assert place(gang, a_snapshot(nodes)) == {"n0": [1], "n2": [0]}


def test_a_place_that_others_have_filled_meanwhile_is_not_kept() -> None:
    snapshot = a_snapshot(GPU_NODES, [a_pod("n0", gpus=1)])
    gang = a_gang("u", a_role(2, gpus=8), prefer=prefers(_0="n0", _1="n1"))
    assert place(gang, snapshot) == {"n1": [1], "n2": [0]}


def test_its_own_terminating_pods_do_not_drive_a_gang_from_its_nodes() -> None:
    pods = [a_gang_pod("u", i, 1, f"n{i}", deleting=True, gpus=8) for i in range(4)]
    gang = a_gang("u", a_role(4, gpus=8), prefer=prefers(_0="n0", _1="n1", _2="n2", _3="n3"))
    assert place(gang, a_snapshot(GPU_NODES, pods)) == {f"n{i}": [i] for i in range(4)}
    assert place(a_gang("v", a_role(1, gpus=1)), a_snapshot(GPU_NODES, pods)) is None


def test_a_bad_node_is_kept_rather_than_not_running_at_all() -> None:
    gang = a_gang("u", a_role(4, gpus=8), avoid=["n1"], prefer=prefers(_0="n0", _1="n1", _2="n2", _3="n3"))
    assert place(gang, a_snapshot(GPU_NODES)) == {f"n{i}": [i] for i in range(4)}


def test_reservations_of_others_are_respected() -> None:
    snapshot = a_snapshot(GPU_NODES, [], [a_reservation("v", {0: "n0", 1: "n2"}, gpus=8)])
    assert place(a_gang("u", a_role(2, gpus=8)), snapshot) == {"n1": [0], "n3": [1]}
    assert place(a_gang("u", a_role(3, gpus=8)), snapshot) is None


def test_large_pods_are_placed_before_small_ones_split_the_nodes() -> None:
    nodes = [a_node("n0", gpus=8), a_node("n1", gpus=4)]
    placed = FirstFit().place(a_gang("u", a_role(1, "ps", gpus=4), a_role(1, gpus=8)), a_snapshot(nodes))
    assert placed
    assert placed.nodes == {("ps", 0): "n1", ("worker", 0): "n0"}


def test_pods_with_little_choice_are_placed_before_others_take_their_nodes() -> None:
    nodes = [a_node("n0", cpu=4, labels={"pool": "a"}), a_node("n1", cpu=4)]
    choosy = NodeRules.parse({"nodeSelector": {"pool": "a"}})
    gang = a_gang("u", a_role(1, "large", cpu=4), a_role(1, "choosy", choosy, cpu=2))
    placed = FirstFit().place(gang, a_snapshot(nodes))
    assert placed
    assert placed.nodes == {("large", 0): "n1", ("choosy", 0): "n0"}


def test_kept_places_give_way_when_the_gang_fits_only_without_them() -> None:
    nodes = [a_node("n0", gpus=8), a_node("n1", gpus=8)]
    before = {("small", 0): "n0", ("small", 1): "n1"}
    gang = a_gang("u", a_role(2, "small", gpus=4), a_role(1, "large", gpus=8), prefer=before)
    assert FirstFit().place(gang, a_snapshot(nodes))


amounts = st.integers(0, 4)
requests: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries({"cpu": amounts, "gpus": amounts})


@st.composite
def snapshots(draw: st.DrawFn, nodes: int = 4) -> Snapshot:
    """Small clusters with foreign pods, other gangs' reservations and nodes that take nobody."""
    made = [
        a_node(
            f"n{i}",
            cpu=draw(amounts) + 1,
            gpus=draw(amounts),
            pods=draw(st.integers(1, 4)),
            taints=["t:NoSchedule"] if draw(st.booleans()) else [],
            cordoned=draw(st.integers(0, 5)) == 0,
        )
        for i in range(draw(st.integers(1, nodes)))
    ]
    names = st.sampled_from([node.name for node in made])
    pods = [a_pod(draw(names), cpu=draw(st.integers(0, 2))) for _ in range(draw(st.integers(0, 3)))]
    places = {i: draw(names) for i in range(draw(st.integers(0, 2)))}
    return a_snapshot(made, pods, [a_reservation("other", places, **draw(requests))])


@st.composite
def gangs(draw: st.DrawFn, uid: str = "u", roles: int = 3) -> GangRequest:
    made = [
        a_role(draw(st.integers(0, 3)), f"r{i}", draw(st.sampled_from([NodeRules(), TOLERANT])), **draw(requests))
        for i in range(draw(st.integers(1, roles)))
    ]
    nodes = st.sampled_from(["n0", "n1", "n2", "n3", "gone"])
    members = [member for role in made for member in role.members()]
    prefer = {member: draw(nodes) for member in members if draw(st.booleans())}
    return a_gang(uid, *made, avoid=draw(st.sets(nodes, max_size=2)), prefer=prefer)


def taken(gang: GangRequest, placed: Placed) -> dict[str, Resources]:
    amounts: dict[str, Resources] = {}
    requests = {role.role: role.resources for role in gang.roles}
    for (role, _), node in placed.nodes.items():
        amounts[node] = amounts.get(node, NOTHING) + requests[role]
    return amounts


@a_few
@given(gangs(), snapshots())
def test_a_gang_is_placed_whole_within_what_is_free_and_only_where_it_may_run(
    gang: GangRequest, snapshot: Snapshot
) -> None:
    placed = FirstFit().place(gang, snapshot)
    if placed is None:
        return
    assert set(placed.nodes) == {member for role in gang.roles for member in role.members()}
    for node, wanted in taken(gang, placed).items():
        free = dict(snapshot.free[node].items())
        assert all(want <= free.get(name, 0) for name, want in wanted.items() if want)
    rules, nodes = {role.role: role.rules for role in gang.roles}, {node.name: node for node in snapshot.nodes}
    assert all(rules[role].obstacle(nodes[node]) is None for (role, _), node in placed.nodes.items())


@a_few
@given(st.integers(0, 6), requests, snapshots(), st.booleans(), st.sets(st.sampled_from(["n0", "n1"])))
def test_equal_pods_find_a_place_exactly_when_an_exhaustive_search_does(
    pods: int, request: dict[str, Any], snapshot: Snapshot, tolerant: bool, avoid: set[str]
) -> None:
    gang = a_gang("u", a_role(pods, rules=TOLERANT if tolerant else NodeRules(), **request), avoid=avoid)
    open_to_us = [n for n in snapshot.nodes if (tolerant or not n.taints) and (tolerant or not n.unschedulable)]
    free = tuple((f.cpu, f.gpus, f.pods) for f in (snapshot.free[n.name] for n in open_to_us))
    one = amount(**request)
    found = FirstFit().place(gang, snapshot) is not None
    assert found == oracle.fits(pods, (one.cpu, one.gpus, one.pods), free)


@a_few
@given(gangs(), snapshots())
def test_equal_input_gives_equal_output(gang: GangRequest, snapshot: Snapshot) -> None:
    assert FirstFit().place(gang, snapshot) == FirstFit().place(gang, snapshot)
