"""What a gang may wish for beyond its mesh, on thousands of small random clusters, each judged by trying everything.

The judges count nodes by their labels and know neither tree nor solver.
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.placement.model import GangRequest, Placed, Reservation, Snapshot
from meshwright.placement.nesting.layout import Axis, Layout, Within, compact
from meshwright.placement.nesting.solver import TopologySolver, lost_wishes
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.resources import Resources
from meshwright.placement.topology.tree import HOSTNAME, Level, Topology
from tests.controller.placement.clusters import a_few, a_gang, a_node, a_role, a_snapshot, amount

TREE = Topology((Level("spine", "s", 0.25), Level("leaf", "l", 0.5), Level("node", HOSTNAME)))
LEVELS: dict[str, Callable[[NodeCapacity], tuple[str, ...]]] = {
    "spine": lambda node: (node.labels["s"],),
    "leaf": lambda node: (node.labels["s"], node.labels["l"]),
    "node": lambda node: (node.name,),
}
many = settings(a_few, max_examples=250)
rooms = st.lists(st.integers(0, 3), min_size=1, max_size=4)
clusters = st.dictionaries(st.sampled_from("abcde"), rooms, min_size=1)
small_clusters = st.dictionaries(
    st.sampled_from("abcd"), st.lists(st.integers(0, 3), min_size=1, max_size=2), min_size=1
)
levels = st.sampled_from(["spine", "leaf", "node"])


def nodes_of(leaves: dict[str, list[int]]) -> list[NodeCapacity]:
    """Nodes by leaf, each with so many GPUs; two leaves to a spine. Names say nothing of where they stand."""
    found = []
    for k, (leaf, sizes) in enumerate(leaves.items()):
        for i, gpus in enumerate(sizes):
            name = f"{(7 * k + 3 * i) % 10}{leaf}{i}"
            found.append(a_node(name, gpus=gpus, labels={"s": f"s{k // 2}", "l": leaf, HOSTNAME: name}))
    return found


def gang_of(layout: Layout, uid: str = "u", **more: object) -> GangRequest:
    return replace(a_gang(uid, a_role(layout.pods, gpus=1)), layout=layout, **more)  # type: ignore[arg-type]


def mesh(data: int, tensor: int, **wishes: object) -> Layout:
    return Layout((Axis("data", data, 4.0), Axis("tensor", tensor, 64.0)), **wishes)  # type: ignore[arg-type]


def placed_on(gang: GangRequest, snapshot: Snapshot) -> list[NodeCapacity] | None:
    """The node of every worker; every node holds what it can at most."""
    placed = TopologySolver(TREE).place(gang, snapshot)
    if placed is None:
        return None
    by_name = {node.name: node for node in snapshot.nodes}
    assert set(placed.nodes) == {member for role in gang.roles for member in role.members()}
    taken: Counter[str] = Counter(placed.nodes.values())
    assert all(count <= by_name[name].allocatable.gpus for name, count in taken.items())
    return [by_name[placed.nodes["worker", i]] for i in range(gang.roles[0].replicas)]


def compositions(limits: Sequence[int], total: int) -> Iterator[tuple[int, ...]]:
    """Every way to give `total` things to places that hold so many each."""
    if not limits:
        if not total:
            yield ()
        return
    for first in range(min(limits[0], total) + 1):
        for rest in compositions(limits[1:], total - first):
            yield (first, *rest)


@many
@given(clusters, st.integers(2, 4), st.integers(1, 3), st.sampled_from(["spine", "leaf"]))
def test_replicas_are_whole_and_as_even_as_any_choice_could_be(
    leaves: dict[str, list[int]], data: int, tensor: int, level: str
) -> None:
    nodes, domain = nodes_of(leaves), LEVELS[level]
    where = placed_on(gang_of(mesh(data, tensor, spread=level)), a_snapshot(nodes))
    room: Counter[tuple[str, ...]] = Counter()
    for node in nodes:
        room[domain(node)] += node.allocatable.gpus
    choices = list(compositions([gpus // tensor for gpus in room.values()], data))
    assert (where is not None) == bool(choices)
    if where:
        replicas = [{domain(node) for node in where[i : i + tensor]} for i in range(0, data * tensor, tensor)]
        assert all(len(domains) == 1 for domains in replicas)
        counts = Counter(domains.pop() for domains in replicas)
        fullest = min(sorted((n for n in choice if n), reverse=True) for choice in choices)
        assert sorted(counts.values(), reverse=True) == fullest


@many
@given(small_clusters, st.sampled_from([1, 2, 3, 4, 6, 8]), st.booleans())
def test_balanced_gangs_have_equal_parts_at_every_level_exactly_when_there_are_any(
    leaves: dict[str, list[int]], pods: int, within: bool
) -> None:
    nodes = nodes_of(leaves)
    constraints = (Within(frozenset({"pods"}), "spine", required=True),) if within else ()
    where = placed_on(gang_of(replace(compact(pods, constraints), balanced=True)), a_snapshot(nodes))

    def equal_parts(counts: Sequence[int]) -> bool:
        for level, domain in LEVELS.items():
            used: Counter[tuple[str, ...]] = Counter()
            for node, count in zip(nodes, counts, strict=True):
                used[domain(node)] += count
            if len({n for n in used.values() if n}) > 1 or (within and level == "spine" and len(+used) > 1):
                return False
        return True

    possible = any(map(equal_parts, compositions([node.allocatable.gpus for node in nodes], pods)))
    assert (where is not None) == possible
    if where:
        held = Counter(node.name for node in where)
        assert equal_parts([held[node.name] for node in nodes])


@many
@given(clusters, st.integers(2, 4), st.integers(1, 2))
def test_balanced_replicas_are_spread_as_far_as_equal_parts_allow(
    leaves: dict[str, list[int]], data: int, tensor: int
) -> None:
    nodes = nodes_of(leaves)
    where = placed_on(gang_of(mesh(data, tensor, spread="leaf", balanced=True)), a_snapshot(nodes))
    if where:
        used = Counter(LEVELS["leaf"](node) for node in where)
        assert len(set(used.values())) == 1
        assert used.total() == data * tensor
        assert all(
            len({LEVELS["leaf"](node) for node in where[i : i + tensor]}) == 1 for i in range(0, data * tensor, tensor)
        )


@many
@given(clusters, st.integers(1, 5), levels, st.data())
def test_a_gang_that_wants_to_be_alone_meets_nobody_and_nobody_comes_in(
    leaves: dict[str, list[int]], pods: int, level: str, data: st.DataObject
) -> None:
    nodes, domain = nodes_of(leaves), LEVELS[level]
    there = data.draw(st.sets(st.sampled_from(range(len(nodes))), max_size=3))
    others = Reservation(
        "other", 1, {("worker", i): nodes[n].name for i, n in enumerate(there)}, {"worker": Resources()}
    )
    taken = {domain(nodes[n]) for n in there}
    room = sum(node.allocatable.gpus for node in nodes if domain(node) not in taken)

    alone = gang_of(replace(compact(pods), exclusive=level))
    where = placed_on(alone, a_snapshot(nodes, reservations=[others]))
    assert (where is not None) == (room >= pods)
    assert not where or not {domain(node) for node in where} & taken

    shut = a_snapshot(nodes, reservations=[replace(others, exclusive=level)])
    for late in (gang_of(compact(pods)), a_gang("u", a_role(pods, gpus=1))):
        where = placed_on(late, shut)
        assert (where is not None) == (room >= pods)
        assert not where or not {domain(node) for node in where} & taken


def test_two_gangs_of_one_look_do_not_meet_where_one_wants_to_be_alone() -> None:
    nodes = nodes_of({"a": [2], "b": [2]})
    first = gang_of(replace(compact(1), exclusive="leaf"), "first")
    placed = TopologySolver(TREE).place(first, a_snapshot(nodes))
    assert placed
    after = a_snapshot(nodes).with_placed(first, placed)
    where = placed_on(gang_of(compact(2)), after)
    assert where
    assert not {node.name for node in where} & set(placed.nodes.values())
    assert placed_on(gang_of(compact(3)), after) is None


def _price(node: NodeCapacity, workers: Sequence[NodeCapacity]) -> float:
    prices = {"spine": 4.0, "leaf": 2.0, "node": 1.0}
    return sum(prices[level] * (domain(node) != domain(w)) for level, domain in LEVELS.items() for w in workers)


@many
@given(clusters, st.integers(1, 4), st.integers(1, 3), st.sampled_from(["", "leaf", "spine"]))
def test_servers_are_as_near_to_the_workers_and_as_far_from_each_other_as_they_can_be(
    leaves: dict[str, list[int]], workers: int, servers: int, spread: str
) -> None:
    nodes = nodes_of(leaves)
    ps = replace(a_role(servers, "ps", gpus=1), near="worker", spread=spread)
    gang = replace(a_gang("u", a_role(workers, gpus=1), ps), layout=compact(workers))
    placed = TopologySolver(TREE).place(gang, a_snapshot(nodes))
    gpus = {node.name: node.allocatable.gpus for node in nodes}
    assert (placed is not None) == (sum(gpus.values()) >= workers + servers)
    if placed is None:
        return
    assert all(count <= gpus[name] for name, count in Counter(placed.nodes.values()).items())
    by_name = {node.name: node for node in nodes}
    at = [by_name[placed.nodes["worker", i]] for i in range(workers)]
    left = Counter(gpus)
    left.subtract(node.name for node in at)
    domain = LEVELS[spread] if spread else (lambda _: ())

    def judge(choice: Sequence[NodeCapacity]) -> tuple[list[int], float]:
        return (
            sorted(Counter(map(domain, choice)).values(), reverse=True),
            sum(_price(node, at) for node in choice),
        )

    everything = (
        judge(choice)
        for choice in itertools.combinations_with_replacement(nodes, servers)
        if all(count <= left[name] for name, count in Counter(node.name for node in choice).items())
    )
    mine = judge([by_name[placed.nodes["ps", i]] for i in range(servers)])
    best = min(everything)
    assert mine[0] == best[0]
    assert abs(mine[1] - best[1]) < 1e-9


def test_the_first_role_may_name_the_second_as_well() -> None:
    """Being near is mutual."""
    nodes = nodes_of({"a": [1], "b": [1, 1, 1], "c": [1]})
    roles = replace(a_role(3, gpus=1), near="ps"), replace(a_role(1, "ps", gpus=1), near="worker")
    placed = TopologySolver(TREE).place(replace(a_gang("u", *roles), layout=compact(3)), a_snapshot(nodes))
    assert placed
    assert placed.nodes["ps", 0][1] == "a"


@many
@given(clusters, st.integers(1, 4), st.integers(1, 2), st.sampled_from(["spine", "leaf"]))
def test_all_pods_of_a_gang_of_unlike_pods_are_in_one_domain_or_it_waits(
    leaves: dict[str, list[int]], workers: int, masters: int, level: str
) -> None:
    nodes, domain = nodes_of(leaves), LEVELS[level]
    layout = compact(workers, [Within(frozenset({"pods"}), level, required=True)])
    gang = replace(a_gang("u", a_role(workers, gpus=1), a_role(masters, "master", gpus=1, cpu=1)), layout=layout)
    placed = TopologySolver(TREE).place(gang, a_snapshot(nodes))
    room: Counter[tuple[str, ...]] = Counter()
    for node in nodes:
        room[domain(node)] += node.allocatable.gpus
    assert (placed is not None) == any(gpus >= workers + masters for gpus in room.values())
    if placed:
        by_name = {node.name: node for node in nodes}
        assert len({domain(by_name[name]) for name in placed.nodes.values()}) == 1


@many
@given(clusters, st.integers(2, 3), st.integers(1, 2), st.sampled_from(["", "leaf"]), st.booleans(), st.data())
def test_a_restarted_gang_stays_where_it_was_and_what_it_wishes_holds_on(
    leaves: dict[str, list[int]], data: int, tensor: int, spread: str, balanced: bool, drawn: st.DataObject
) -> None:
    nodes = nodes_of(leaves)
    gang = gang_of(mesh(data, tensor, spread=spread, balanced=balanced))
    first = TopologySolver(TREE).place(gang, a_snapshot(nodes))
    if first is None:
        return
    again = replace(gang, prefer=first.nodes)
    assert TopologySolver(TREE).place(again, a_snapshot(nodes)) == first
    lost = drawn.draw(st.sampled_from(sorted(set(first.nodes.values()))))
    rest = [node for node in nodes if node.name != lost]
    second = TopologySolver(TREE).place(again, a_snapshot(rest))
    fresh = TopologySolver(TREE).place(gang, a_snapshot(rest))
    assert (second is None) == (fresh is None)
    if second is None:
        return
    by_name = {node.name: node for node in rest}
    where = [by_name[second.nodes["worker", i]] for i in range(data * tensor)]
    if balanced:
        assert all(len(set(Counter(map(domain, where)).values())) == 1 for domain in LEVELS.values())
    if spread:
        for i in range(0, data * tensor, tensor):
            assert len({LEVELS["leaf"](node) for node in where[i : i + tensor]}) == 1


@pytest.mark.parametrize("tensor", [1, 2])
def test_a_spread_gang_that_lost_a_node_keeps_the_others_and_stays_spread(tensor: int) -> None:
    nodes = nodes_of({leaf: [1, 1, 1] for leaf in "abcde"})
    gang = gang_of(mesh(3, tensor, spread="leaf"))
    first = TopologySolver(TREE).place(gang, a_snapshot(nodes))
    assert first
    lost = first.nodes["worker", 1]
    rest = [node for node in nodes if node.name != lost]
    second = TopologySolver(TREE).place(replace(gang, prefer=first.nodes), a_snapshot(rest))
    assert second
    moved = {member for member, name in first.nodes.items() if second.nodes[member] != name}
    assert moved == {("worker", 1)}
    leaves = Counter(name[1] for name in second.nodes.values())
    assert sorted(leaves.values()) == [tensor] * 3


def test_a_spread_gang_moves_if_a_lost_replica_would_have_to_share_where_others_are_free() -> None:
    """The third replica fits beside its own no more; one domain with two of them is worse than what can be had."""
    nodes = nodes_of({"a": [2], "b": [2], "c": [1], "d": [1]})
    gang = gang_of(mesh(2, 2, spread="leaf"))
    before = {("worker", 0): "0a0", ("worker", 1): "0a0", ("worker", 2): "gone", ("worker", 3): "gone"}
    placed = TopologySolver(TREE).place(replace(gang, prefer=before), a_snapshot(nodes))
    assert placed
    assert Counter(name[1] for name in placed.nodes.values()) == {"a": 2, "b": 2}


def test_what_was_only_preferred_and_is_not_to_be_had_is_told() -> None:
    nodes = nodes_of({"a": [1, 1], "b": [1, 1], "c": [1]})
    wishes = [Within(frozenset({"tensor"}), level) for level in ("leaf", "rack", "node")]
    placed = TopologySolver(TREE).place(gang_of(mesh(2, 2, constraints=tuple(wishes))), a_snapshot(nodes))
    assert placed
    assert placed.seating
    assert [wish.level for wish in lost_wishes(placed.seating)] == ["rack", "node"]


def reason(gang: GangRequest, nodes: Sequence[NodeCapacity], topology: Topology = TREE, **more: object) -> str:
    snapshot = a_snapshot(nodes, **more)  # type: ignore[arg-type]
    assert TopologySolver(topology).place(gang, snapshot) is None
    return TopologySolver(topology).why_not(gang, snapshot).message


def test_reasons_say_what_is_missing_in_counts() -> None:
    nodes = nodes_of({"a": [1, 1, 1], "b": [1]})
    assert "room for 4 pods, 4 are asked for, but not in equal parts (balanced)" in reason(
        gang_of(replace(compact(4), balanced=True)), [*nodes]
    )
    assert "needs 2 times 2 pods under one leaf (tensor)" in reason(gang_of(mesh(2, 2, spread="leaf")), nodes)
    other = Reservation("other", 1, {("worker", 0): nodes[0].name}, {"worker": amount(gpus=1)})
    said = reason(gang_of(replace(compact(2), exclusive="leaf")), nodes, reservations=[other])
    assert said.endswith("; 3 nodes left out, in domains that one job has to itself")
    assert not any(node.name in said for node in nodes)


def test_a_level_that_is_none_makes_a_gang_wait_whichever_wish_names_it() -> None:
    nodes = nodes_of({"a": [4, 4]})
    asks = [
        gang_of(compact(2, [Within(frozenset({"pods"}), "rack", required=True)])),
        gang_of(replace(compact(2), exclusive="rack")),
        gang_of(replace(compact(2), spread="rack")),
        replace(a_gang("u", a_role(2, gpus=1), replace(a_role(1, "ps"), spread="rack")), layout=compact(2)),
    ]
    for gang in asks:
        assert reason(gang, nodes) == "the cluster's topology has no level rack; use one of spine, leaf, node"
        assert "the operator was told of no topology" in reason(gang, nodes, Topology())


def test_without_a_topology_nodes_are_still_a_level() -> None:
    nodes = nodes_of({"a": [1, 3], "b": [2]})
    together = gang_of(compact(3, [Within(frozenset({"pods"}), "node", required=True)]))
    placed = TopologySolver(Topology()).place(together, a_snapshot(nodes))
    assert isinstance(placed, Placed)
    assert len(set(placed.nodes.values())) == 1


def test_domains_are_told_by_their_path_not_by_their_name() -> None:
    """Two leaves `x` under two spines are two; a gang that is alone in one leaves the other open."""
    nodes = [a_node(f"n{i}", gpus=1, labels={"s": f"s{i}", "l": "x", HOSTNAME: f"n{i}"}) for i in range(2)]
    other = Reservation("other", 1, {("worker", 0): "n0"}, {"worker": amount(gpus=1)}, exclusive="leaf")
    where = placed_on(gang_of(compact(1)), a_snapshot(nodes, reservations=[other]))
    assert where
    assert where[0].name == "n1"


def test_seating_counts_domains() -> None:
    nodes = nodes_of({"a": [2, 2], "b": [2], "c": [2]})
    placed = TopologySolver(TREE).place(gang_of(compact(4)), a_snapshot(nodes))
    assert placed
    assert placed.seating
    by_level = {TREE.levels[i - 1].name: placed.seating.count(i) for i in (1, 2, 3)}
    assert by_level == {"spine": 1, "leaf": 1, "node": 2}
    grouped: defaultdict[int, int] = defaultdict(int)
    for _, members in placed.seating.domains(3):
        grouped[len(members)] += 1
    assert grouped == {2: 2}
