"""Placement by topology: valid, complete, where the traffic wants it, and reasons in counts.

Rules are checked from the nodes' labels alone, whether there is a place by a count that knows no tree.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.placement.model import GangRequest, Member, Placed, Refused, Snapshot
from meshwright.placement.nesting.layout import Axis, Layout, Pattern, Within, compact
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.queueing.queue import judge
from meshwright.placement.solver import FirstFit
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.topology.tree import HOSTNAME, Level, Topology
from tests.controller.placement.clusters import a_few, a_gang, a_node, a_role, a_snapshot

TREE = Topology((Level("spine", "s", 0.25), Level("leaf", "l", 0.5), Level("node", HOSTNAME)))
FABRICS = json.loads((Path(__file__).parent / "vectors" / "fabrics.json").read_text())["fabrics"]


def nodes_of(leaves: Mapping[str, Sequence[int]], per_spine: int = 2) -> list[NodeCapacity]:
    """Nodes by leaf, each with so many GPUs; leaves follow each other under spines."""
    return [
        a_node(f"{leaf}-{i}", gpus=gpus, labels={"s": f"s{k // per_spine}", "l": leaf, HOSTNAME: f"{leaf}-{i}"})
        for k, (leaf, sizes) in enumerate(leaves.items())
        for i, gpus in enumerate(sizes)
    ]


def a_grid(layout: Layout, **given_: object) -> GangRequest:
    gang = a_gang("u", a_role(layout.pods, gpus=1), **given_)  # type: ignore[arg-type]
    return GangRequest(**{**{k: getattr(gang, k) for k in gang.__dataclass_fields__}, "layout": layout})


def place(layout: Layout, snapshot: Snapshot, **given_: object) -> list[str] | None:
    """The node of every pod."""
    placed = TopologySolver(TREE).place(a_grid(layout, **given_), snapshot)
    return placed and [placed.nodes["worker", i] for i in range(layout.pods)]


def mesh(*sizes: int, within: Iterable[Within] = ()) -> Layout:
    names = ("pipeline", "data", "tensor")[-len(sizes) :]
    axes = zip(names, sizes, (1.0, 4.0, 64.0)[-len(sizes) :], strict=True)
    neighbours = {"pipeline": Pattern.NEIGHBOURS}
    return Layout(tuple(Axis(n, s, t, neighbours.get(n, Pattern.COLLECTIVE)) for n, s, t in axes), tuple(within))


def held(axis: str, level: str, required: bool = True) -> Within:
    return Within(frozenset({axis}), level, required)


def test_tensor_groups_stay_whole_where_first_fit_parts_them() -> None:
    snapshot = a_snapshot(nodes_of({"a": [1, 1, 1], "b": [1, 1, 1]}))
    placed = place(mesh(2, 2), snapshot)
    assert placed
    assert [{name[0] for name in placed[i : i + 2]} for i in (0, 2)] in ([{"a"}, {"b"}], [{"b"}, {"a"}])
    naive = FirstFit().place(a_grid(mesh(2, 2)), snapshot)
    assert naive
    assert {naive.nodes["worker", i][0] for i in (2, 3)} == {"a", "b"}


def test_the_tightest_domain_that_fits_is_taken_so_that_big_holes_survive() -> None:
    placed = place(compact(2), a_snapshot(nodes_of({"a": [1] * 4, "b": [1] * 2, "c": [1] * 3})))
    assert placed
    assert {name[0] for name in placed} == {"b"}


def test_consecutive_stages_of_a_pipeline_are_neighbours() -> None:
    layout = Layout((Axis("pipeline", 6, 1.0, Pattern.NEIGHBOURS),))
    placed = place(layout, a_snapshot(nodes_of({"a": [1, 1], "b": [1, 1], "c": [1, 1]}, per_spine=1)))
    assert placed
    assert sum(a[0] != b[0] for a, b in itertools.pairwise(placed)) == 2


def test_a_required_constraint_makes_the_gang_wait_and_a_preferred_one_does_not() -> None:
    snapshot = a_snapshot(nodes_of({"a": [1, 1, 1], "b": [1]}))
    assert place(mesh(2, 2, within=[held("tensor", "leaf")]), snapshot) is None
    assert place(mesh(2, 2, within=[held("tensor", "leaf", required=False)]), snapshot)
    assert place(mesh(2, 2, within=[held("tensor", "rack")]), snapshot) is None
    assert place(mesh(2, 2, within=[held("tensor", "rack", required=False)]), snapshot)


def test_the_reason_counts_groups_domains_and_nodes_and_names_none() -> None:
    nodes = [*nodes_of({"a": [1, 1, 1], "b": [1]}), a_node("stray", gpus=8)]
    gang = a_grid(mesh(2, 2, within=[held("tensor", "leaf")]))
    refused = TopologySolver(TREE).why_not(gang, a_snapshot(nodes))
    assert refused.message == (
        "needs 2 times 2 pods under one leaf (tensor), each with 1 nvidia.com/gpu; 1 such groups fit; the best leaf "
        "has room for 3: of its 3 nodes 3 with room; 1 node without label s left out"
    )


def test_nodes_that_stand_nowhere_are_no_room() -> None:
    """A gang of four finds three nodes in the topology and five beside it."""
    strays = [a_node(f"stray{i}", gpus=8) for i in range(5)]
    solver, gang = TopologySolver(TREE), a_grid(mesh(2, 2))
    refused = solver.why_not(gang, a_snapshot([*nodes_of({"a": [1, 1, 1]}), *strays]))
    assert "there is room for 3: of 3 nodes 3 with room; 5 nodes without label s left out" in refused.message
    assert solver.why_not(gang, a_snapshot(strays)).message == (
        "no node has the labels of the cluster's topology; 5 nodes without label s left out"
    )


def test_a_level_that_is_none_is_named_with_those_that_are() -> None:
    gang = a_grid(mesh(2, 2, within=[held("tensor", "rack")]))
    refused = TopologySolver(TREE).why_not(gang, a_snapshot(nodes_of({"a": [4]})))
    assert refused.message == "the cluster's topology has no level rack; use one of spine, leaf, node"


def test_without_a_layout_or_a_topology_everything_is_as_with_first_fit() -> None:
    snapshot = a_snapshot([a_node(f"n{i}", gpus=2) for i in range(3)])
    plain = a_gang("u", a_role(5, gpus=1))
    assert TopologySolver(TREE).place(plain, snapshot) == FirstFit().place(plain, snapshot)
    assert TopologySolver(Topology()).place(a_grid(mesh(2, 2)), snapshot) == FirstFit().place(
        a_gang("u", a_role(4, gpus=1)), snapshot
    )


def test_nodes_to_avoid_are_used_only_if_nothing_else_will_do() -> None:
    snapshot = a_snapshot(nodes_of({"a": [1, 1], "b": [1, 1, 1]}))
    placed = place(compact(2), snapshot, avoid=["a-0"])
    assert placed
    assert {name[0] for name in placed} == {"b"}
    assert place(compact(5), snapshot, avoid=["a-0"])


def test_a_restarted_gang_keeps_its_places_and_a_lost_pod_stays_near() -> None:
    nodes = nodes_of({"a": [1] * 3, "b": [1] * 8, "c": [1] * 3})
    before = {("worker", i): name for i, name in enumerate(["c-0", "gone", "b-4", "b-6"])}
    placed = place(mesh(2, 2, within=[held("tensor", "leaf")]), a_snapshot(nodes), prefer=before)
    assert placed
    assert [placed[0], *placed[2:]] == ["c-0", "b-4", "b-6"]
    assert placed[1] in ("c-1", "c-2")


def test_a_wish_moves_no_gang_that_is_restarted() -> None:
    nodes = nodes_of({"a": [1, 1], "b": [1, 1], "c": [1, 1]})
    before = {("worker", 0): "a-0", ("worker", 1): "b-0"}
    layout = mesh(1, 2, within=[held("tensor", "leaf", required=False)])
    assert place(layout, a_snapshot(nodes), prefer=before) == ["a-0", "b-0"]


def test_pods_beside_the_grid_get_what_is_left() -> None:
    gang = a_gang("u", a_role(4, gpus=1), a_role(1, "ps", gpus=2))
    gang = GangRequest(**{**{k: getattr(gang, k) for k in gang.__dataclass_fields__}, "layout": mesh(2, 2)})
    placed = TopologySolver(TREE).place(gang, a_snapshot(nodes_of({"a": [1, 1, 1, 1], "b": [2]})))
    assert placed
    assert placed.nodes["ps", 0] == "b-0"


leaves = st.dictionaries(st.sampled_from("abcde"), st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1)
shapes = st.lists(st.integers(1, 4), min_size=2, max_size=3).map(tuple)


@settings(a_few, max_examples=300)
@given(leaves, shapes, st.sampled_from(["tensor", "data"]), st.sampled_from(["spine", "leaf", "node"]), st.booleans())
def test_a_place_is_valid_and_there_is_one_exactly_when_the_groups_fit(
    cluster: dict[str, list[int]], shape: tuple[int, ...], axis: str, level: str, required: bool
) -> None:
    layout = mesh(*shape, within=[held(axis, level, required)])
    nodes = nodes_of(cluster)
    placed = place(layout, a_snapshot(nodes))
    together = next(a.size for a in layout.axes if a.name == axis) if required else 1
    room: Counter[tuple[str, ...]] = Counter()
    for node in nodes:
        room[path(node, level)] += node.allocatable.gpus
    assert (placed is not None) == (sum(n // together for n in room.values()) >= layout.pods // together)
    if placed:
        assert_valid(placed, layout, nodes, [axis] if required else [], level)


@pytest.mark.parametrize("fabric", FABRICS)
@pytest.mark.parametrize("nvlink", [False, True], ids=["switches", "nvlink"])
@settings(a_few, max_examples=8)
@given(shape=shapes, data=st.data())
def test_places_on_known_fabrics_are_valid(
    fabric: str, nvlink: bool, shape: tuple[int, ...], data: st.DataObject
) -> None:
    keys = ["fabric/tier-2", "fabric/tier-1", "fabric/tier-0", *(["accelerator/domain"] if nvlink else [])]
    keys = [key for key in keys if key in FABRICS[fabric][0]["labels"]]
    topology = Topology(tuple(Level(key, key, 2.0**i) for i, key in enumerate(keys)))
    busy = data.draw(st.sets(st.integers(0, len(FABRICS[fabric]) - 1), max_size=20))
    nodes = [a_node(n["name"], gpus=0 if i in busy else 1, labels=n["labels"]) for i, n in enumerate(FABRICS[fabric])]
    layout = mesh(*shape, within=[held("tensor", keys[-1])])
    placed = TopologySolver(topology).place(a_grid(layout), a_snapshot(nodes))
    room = Counter(tuple(n.labels[key] for key in keys) for n in nodes if n.allocatable.gpus)
    assert (placed is not None) == (sum(n // shape[-1] for n in room.values()) * shape[-1] >= layout.pods)
    if placed:
        where = [placed.nodes["worker", i] for i in range(layout.pods)]
        labels = {n.name: tuple(n.labels[key] for key in keys) for n in nodes}
        assert len(set(where)) == len(where)
        assert not {nodes[i].name for i in busy} & set(where)
        for i in range(0, layout.pods, shape[-1]):
            assert len({labels[name] for name in where[i : i + shape[-1]]}) == 1


def path(node: NodeCapacity, level: str) -> tuple[str, ...]:
    keys = {"spine": ["s"], "leaf": ["s", "l"], "node": ["s", "l", HOSTNAME]}[level]
    return tuple(node.labels[key] for key in keys)


def assert_valid(
    placed: Sequence[str], layout: Layout, nodes: Sequence[NodeCapacity], axes: Sequence[str], level: str
) -> None:
    by_name = {node.name: node for node in nodes}
    assert all(count <= by_name[name].allocatable.gpus for name, count in Counter(placed).items())
    groups: dict[tuple[int, ...], set[tuple[str, ...]]] = defaultdict(set)
    for pod, name in enumerate(placed):
        place_, rest = [], pod
        for axis in reversed(layout.axes):
            place_.append(0 if axis.name in axes else rest % axis.size)
            rest //= axis.size
        groups[tuple(place_)].add(path(by_name[name], level))
    assert not axes or all(len(domains) == 1 for domains in groups.values())


def test_equal_input_gives_equal_output() -> None:
    snapshot = a_snapshot(nodes_of({"a": [2, 1, 3], "b": [1, 2], "c": [3, 1]}))
    answers: list[Placed | None] = [TopologySolver(TREE).place(a_grid(mesh(2, 2, 2)), snapshot) for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]


def test_members_of_all_roles_are_placed_once() -> None:
    layout = mesh(2, 3)
    placed = TopologySolver(TREE).place(a_grid(layout), a_snapshot(nodes_of({"a": [3], "b": [3]})))
    assert placed
    expected: set[Member] = {("worker", i) for i in range(6)}
    assert set(placed.nodes) == expected


def test_roles_that_no_grid_covers_go_by_first_fit_unless_something_is_required() -> None:
    gang = a_gang("u", a_role(2, gpus=1), a_role(1, "ps", gpus=2))
    fields = {name: getattr(gang, name) for name in gang.__dataclass_fields__}
    snapshot = a_snapshot(nodes_of({"a": [1, 1, 2]}))
    loose, strict = mesh(2, 2), mesh(2, 2, within=[held("tensor", "leaf")])
    assert TopologySolver(TREE).place(GangRequest(**{**fields, "layout": loose}), snapshot)
    assert TopologySolver(TREE).place(GangRequest(**{**fields, "layout": strict}), snapshot) is None


def test_of_two_gangs_that_fit_alone_but_not_together_one_runs_and_the_other_is_told_why() -> None:
    layout = mesh(2, 2, within=[held("tensor", "leaf")])
    fields = {name: getattr(a_grid(layout), name) for name in GangRequest.__dataclass_fields__}
    gangs = [GangRequest(**{**fields, "job_uid": uid}) for uid in ("first", "second")]
    judgement = judge(gangs, a_snapshot(nodes_of({"a": [1, 1, 1], "b": [1, 1, 1]})), TopologySolver(TREE))
    assert isinstance(judgement.verdict("first"), Placed)
    refused = judgement.verdict("second")
    assert isinstance(refused, Refused)
    assert "there is room for 2" in refused.message


def test_gangs_that_differ_in_their_layout_alone_get_answers_of_their_own() -> None:
    fields = {name: getattr(a_grid(compact(4)), name) for name in GangRequest.__dataclass_fields__}
    strict = mesh(2, 2, within=[held("data", "leaf"), held("tensor", "leaf")])
    gangs = [GangRequest(**{**fields, "job_uid": "1", "layout": strict}), GangRequest(**{**fields, "job_uid": "2"})]
    judgement = judge(gangs, a_snapshot(nodes_of({"a": [1, 1], "b": [1, 1]})), TopologySolver(TREE))
    assert isinstance(judgement.verdict("1"), Refused)
    assert isinstance(judgement.verdict("2"), Placed)
