"""Every GPU is counted once, wherever it is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from meshwright.picture.census import census
from meshwright.picture.folding import folded, only_job, without_repeats
from meshwright.picture.guessing import guess
from meshwright.picture.inventory import Inventory
from meshwright.picture.job_file import job_of
from meshwright.picture.model import Domain, Gpus, State, ranges
from meshwright.picture.siting import Siting
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.topology.presets import PRESETS
from meshwright.placement.topology.tree import Level, Topology, Tree
from meshwright_api import names
from tests.controller.picture.scenes import (
    TOPOLOGY,
    a_gang_pod,
    a_job,
    a_mesh_job,
    a_node,
    a_pod,
    parsed,
    two_by_two_by_two,
)
from tests.controller.placement.clusters import a_few


def by_name(root: Domain) -> dict[str, Domain]:
    return {domain.name: domain for domain in root.walk()}


def test_gpus_are_free_busy_or_closed() -> None:
    inventory = two_by_two_by_two(
        a_pod("a", "n0", 8),
        a_pod("b", "n1", 3),
        a_pod("c", "n2", 5),
        n2=a_node("n2", "s0", "l1", ready=False),
        n7=a_node("n7", "s1", "l3", cordoned=True),
    )
    root = Siting(inventory, TOPOLOGY, "t").cluster().root
    found = by_name(root)

    assert root.gpus == Gpus(free=5 + 8 * 4, busy=8 + 3 + 5, closed=3 + 8)
    assert found["n1"].gpus == Gpus(free=5, busy=3)
    assert (found["n2"].gpus, found["n2"].note) == (Gpus(busy=5, closed=3), "not ready")
    assert (found["n7"].gpus, found["n7"].note) == (Gpus(closed=8), "cordoned")
    assert found["l0"].gpus == Gpus(free=5, busy=11)
    assert [child.name for child in found["s1"].children] == ["l2", "l3"]


def test_a_node_that_holds_more_than_it_has_is_just_busy() -> None:
    inventory = two_by_two_by_two(a_pod("a", "n0", 8), a_pod("b", "n0", 8))
    assert by_name(Siting(inventory, TOPOLOGY, "t").cluster().root)["n0"].gpus == Gpus(busy=8)


def test_a_pod_that_is_pinned_holds_its_place_before_it_is_bound() -> None:
    inventory = two_by_two_by_two(a_pod("a", pinned="n3"), a_pod("b"))
    root = Siting(inventory, TOPOLOGY, "t").cluster().root
    assert {domain.name for domain in root.walk() if domain.is_node and domain.gpus.busy} == {"n3"}


def test_a_node_without_a_label_is_left_out_and_counted() -> None:
    lost = a_node("n0")
    del lost["metadata"]["labels"]["fabric/leaf"]
    picture = Siting(two_by_two_by_two(n0=lost), TOPOLOGY, "t").cluster()
    assert picture.root.nodes == 7
    assert picture.unlabelled == (("fabric/leaf", 1),)


def test_a_cluster_without_nodes_is_empty() -> None:
    picture = Siting(Inventory.of([]), TOPOLOGY, "t").cluster()
    assert (picture.root.nodes, picture.root.gpus.total) == (0, 0)
    waits = Siting(Inventory.of([]), TOPOLOGY, "t").job(parsed(a_job())).job
    assert waits is not None
    assert (waits.state, waits.rooms) == (State.WAITS, ())


def test_a_running_job_is_told_from_others_and_its_ranks_follow_its_pods() -> None:
    pods = [a_gang_pod(0, "n5"), a_gang_pod(1, "n4")]
    inventory = two_by_two_by_two(*pods, a_pod("other", "n0", 8))
    picture = Siting(inventory, TOPOLOGY, "t").job(parsed(a_job(2)))
    found = by_name(picture.root)

    assert picture.job is not None
    assert picture.job.state is State.RUNS
    assert found["n5"].ranks == tuple(range(8)), "the pod of index 0 has the first ranks"
    assert found["n4"].ranks == tuple(range(8, 16))
    assert found["n5"].gpus == Gpus(job=8)
    assert found["n0"].gpus == Gpus(busy=8)
    assert found["l2"].pods == 2


def test_only_the_newest_incarnation_of_a_pod_is_drawn() -> None:
    old, new = a_gang_pod(0, "n1", 1), a_gang_pod(0, "n2", 2)
    picture = Siting(two_by_two_by_two(old, new), TOPOLOGY, "t").job(parsed(a_job(1)))
    assert {d.name for d in picture.root.walk() if d.is_node and d.pods} == {"n2"}


def test_a_job_that_would_start_takes_nothing_yet_and_is_drawn_all_the_same() -> None:
    picture = Siting(two_by_two_by_two(), TOPOLOGY, "t").job(parsed(a_job(2)))
    assert picture.job is not None
    assert picture.job.state is State.WOULD_START
    assert picture.root.gpus == Gpus(free=48, job=16)
    assert [(c.level, c.domains) for c in picture.job.crossing] == [("spine", 1), ("leaf", 1), ("node", 2)]


def test_what_crosses_a_level_is_told_where_the_mesh_is_known() -> None:
    """By hand: 32 ranks on 4 nodes; each of 2 shard groups has 2 nodes of one leaf, 16 data groups join the leaves."""
    job = parsed(a_mesh_job(4))
    placed = Siting(two_by_two_by_two(), TOPOLOGY, "t").job(job).job
    own_image = Siting(two_by_two_by_two(), TOPOLOGY, "t").job(parsed(a_job(4))).job
    assert placed is not None
    assert own_image is not None
    weights = 2 * 12 * 32 * 4096**2
    shard, data = 3 * 15 / 16 * weights, 2 * 1 / 2 * weights / 16
    assert placed.mesh == (("data", 2), ("shard", 16))
    assert [c.bytes for c in placed.crossing] == [0, 16 * data, 2 * shard + 16 * data]
    assert [c.bytes for c in own_image.crossing] == [None, None, None]


def test_nothing_is_said_of_crossing_while_a_pod_stands_nowhere() -> None:
    lost = a_node("n7")
    del lost["metadata"]["labels"]["fabric/leaf"]
    pods = [a_gang_pod(0, "n0"), a_gang_pod(1, "n7")]
    job = Siting(two_by_two_by_two(*pods, n7=lost), TOPOLOGY, "t").job(parsed(a_mesh_job(2))).job
    assert job is not None
    assert job.state is State.RUNS
    assert [(c.domains, c.bytes) for c in job.crossing] == [(1, None), (1, None), (1, None)]


def test_why_a_job_waits_is_counted_level_by_level() -> None:
    inventory = two_by_two_by_two(*(a_pod(f"p{i}", f"n{i}", 8) for i in (0, 2, 3, 5)))
    job = Siting(inventory, TOPOLOGY, "t").job(parsed(a_job(5))).job
    assert job is not None
    assert job.state is State.WAITS
    assert "5 pods of role worker" in job.message
    assert [(r.level, r.domains, r.best, r.best_pods, r.whole) for r in job.rooms] == [
        ("spine", 2, "s1", 3, 0),
        ("leaf", 4, "s1/l3", 2, 0),
        ("node", 8, "s0/l0/n1", 1, 0),
    ]


def test_a_job_stands_behind_those_that_wait_before_it() -> None:
    nodes = [a_node("n0"), a_node("n1")]
    first = a_job(3, name="first", uid="fedcba9876543210")
    ours, _ = job_of([a_job(1)], "team")
    alone = Siting(Inventory.of(nodes), TOPOLOGY, "t").job(ours).job
    larger = [*nodes, a_node("n2")]
    busy = [a_pod(names.pod_name("x", "76543210", "worker", 0, 1), "n2", 8, owner={"name": "x", "uid": "76543210"})]
    behind = Siting(Inventory.of(larger, busy, [first]), TOPOLOGY, "t").job(ours).job
    assert alone is not None
    assert behind is not None
    assert alone.state is State.WOULD_START
    assert (behind.state, behind.reason) == (State.WAITS, "WaitingForTurn")
    assert "1 job ahead" in behind.message


@a_few
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 4), st.integers(0, 8), st.booleans()), min_size=1, max_size=40
    ),
    st.integers(1, 50),
)
def test_whatever_is_left_out_the_parts_of_a_domain_add_up(drawn: list[tuple[int, int, int, bool]], most: int) -> None:
    nodes = [a_node(f"n{i}", f"s{s}", f"l{leaf}", ready=ready) for i, (s, leaf, _, ready) in enumerate(drawn)]
    pods = [a_pod(f"p{i}", f"n{i}", used) for i, (_, _, used, _) in enumerate(drawn)]
    picture = Siting(Inventory.of(nodes, pods), TOPOLOGY, "t").job(parsed(a_job(3)))
    for root in (picture.root, folded(picture.root, most), without_repeats(picture.root)):
        assert root.gpus.total == 8 * len(nodes)
        for domain in root.walk():
            if domain.children:
                assert domain.nodes == sum(child.nodes for child in domain.children)
                assert domain.gpus == sum((child.gpus for child in domain.children), Gpus())
                assert domain.pods == sum(child.pods for child in domain.children)
    shown = [domain for domain in folded(picture.root, most).walk() if domain.level == "node"]
    assert sum("other" not in domain.name for domain in shown) <= max(most, 1)


def test_a_large_cluster_is_folded_and_the_job_is_not() -> None:
    nodes = [a_node(f"n{i:04}", f"s{i // 320:02}", f"l{i // 16:03}") for i in range(1600)]
    picture = Siting(Inventory.of(nodes), TOPOLOGY, "t").job(parsed(a_job(4)))
    root = folded(picture.root, 64)
    assert sorted(d.name for d in root.walk() if d.is_node) == ["n0000", "n0001", "n0002", "n0003"]
    assert "12 others" in by_name(root)
    assert by_name(root)["s03"].children == ()
    assert [d.name for d in only_job(root).walk()] == ["cluster", "s00", "l000", "n0000", "n0001", "n0002", "n0003"]


def test_domains_of_one_node_are_not_drawn_twice() -> None:
    nodes = [a_node(f"n{i}", labels={"nvl": f"n{i}"}) for i in range(2)]
    tree = Tree.of(Topology((Level("spine", "fabric/spine"), Level("nvlink", "nvl"))), Inventory.of(nodes).nodes)
    root = census(tree, Inventory.of(nodes).snapshot(), {})
    assert [d.level for d in root.walk()] == ["cluster", "spine", "nvlink", "node", "nvlink", "node"]
    assert [d.level for d in without_repeats(root).walk()] == ["cluster", "spine", "node", "node"]


def test_the_topology_is_guessed_from_what_most_gpu_nodes_have() -> None:
    def nodes(*presets: str) -> tuple[NodeCapacity, ...]:
        found = []
        for i, preset in enumerate(presets):
            labels = {key: "x" for name in preset.split("+") if name for key in PRESETS[name].keys}
            found.append(a_node(f"n{i}", labels=labels))
        return Inventory.of(found).nodes

    assert guess(nodes("gke", "gke", "")) == "gke"
    assert guess(nodes("gke", "", "")) == ""
    assert guess(nodes("kubernetes+gke", "kubernetes+gke")) == "gke"
    assert guess(nodes("kubernetes", "kubernetes")) == "kubernetes"
    assert guess(nodes("topograph", "topograph")) == "topograph"
    # Nodes without GPUs, such as those of the control plane, do not count.
    mixed = nodes("oci")
    plain = Inventory.of([a_node(f"m{i}", gpus=0) for i in range(5)])
    assert guess((*mixed, *plain.nodes)) == "oci"


def test_ranges() -> None:
    assert ranges([]) == ""
    assert ranges([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
