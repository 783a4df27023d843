"""The running account equals a count of everything from the start, whatever happened in whatever order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.placement.model import Reservation, Snapshot
from meshwright.placement.supply.capacity import PodUse, snapshot
from meshwright.placement.supply.eligibility import ANYWHERE, NodeRules
from meshwright.placement.supply.ledger import Ledger
from tests.controller.placement.clusters import a_gang_pod, a_node, a_pod, a_reservation, amount

NO_SERVER: Any = None
NAMES = ("n1", "n2", "n3")
RULES = (
    ANYWHERE,
    NodeRules.parse({"nodeSelector": {"pool": "a"}}),
    NodeRules.parse({"tolerations": [{"key": "k", "operator": "Exists"}]}),
    NodeRules.parse({"tolerations": [{"operator": "Exists"}]}),
)


def a_node_object(
    name: str, uid: str, gpus: int, ready: bool, cordoned: bool, taint: bool, pool: str
) -> dict[str, Any]:
    allocatable = {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": str(gpus), "rdma/ib": "2"}
    return {
        "metadata": {"name": name, "uid": uid, "labels": {"pool": pool}},
        "spec": {"unschedulable": cordoned, "taints": [{"key": "k", "effect": "NoSchedule"}] if taint else []},
        "status": {
            "allocatable": allocatable,
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
        },
    }


yes = st.booleans()
node_events = st.tuples(
    st.just("node"),
    st.builds(
        a_node_object,
        st.sampled_from(NAMES),
        st.sampled_from(["u1", "u2"]),
        st.sampled_from([0, 4, 8]),
        yes,
        yes,
        yes,
        st.sampled_from("ab"),
    ),
)
node_deletions = st.tuples(st.just("no node"), st.tuples(st.sampled_from(NAMES), st.sampled_from(["u1", "u2", "u9"])))
jobs, indexes, incarnations = st.sampled_from(["j1", "j2"]), st.sampled_from([0, 1]), st.sampled_from([1, 2])


@st.composite
def pod_objects(draw: st.DrawFn) -> dict[str, Any]:
    node = draw(st.sampled_from([None, *NAMES, "elsewhere"]))
    rest: dict[str, Any] = {
        "phase": draw(st.sampled_from(["Pending", "Running", "Succeeded", "Failed"])),
        "deleting": draw(yes),
        "cpu": draw(st.sampled_from([0, 1])),
        "gpus": draw(st.sampled_from([0, 1, 2])),
    }
    if draw(yes):
        pod = a_gang_pod(draw(jobs), draw(indexes), draw(incarnations), node, **rest)
    else:
        pod = a_pod(node, name=f"foreign-{draw(indexes)}", **rest)
    # Two UIDs for one name: a pod was deleted and made again, and one of the two events came first.
    pod["metadata"]["uid"] = f"{pod['metadata']['name']}/{draw(st.sampled_from([1, 2]))}"
    return pod


pod_events = st.tuples(st.just("pod"), pod_objects())
pod_deletions = st.tuples(st.just("no pod"), pod_objects())
places = st.dictionaries(indexes, st.sampled_from([*NAMES, "elsewhere"]), min_size=1)
reservations = st.tuples(
    st.just("reserve"),
    st.builds(
        lambda uid, nodes, incarnation, gpus, cpu: a_reservation(uid, nodes, incarnation, gpus=gpus, cpu=cpu),
        jobs,
        places,
        incarnations,
        st.sampled_from([0, 1, 2]),
        st.sampled_from([0, 1]),
    ),
)
releases = st.tuples(st.just("release"), jobs)
looks = st.tuples(st.just("look"), st.just(None))
histories = st.lists(
    st.one_of(node_events, node_deletions, pod_events, pod_deletions, reservations, releases, looks), max_size=40
)


class Account:
    """Caches and a ledger that is told by them, beside a list of all that is there."""

    def __init__(self) -> None:
        self.pods, self.nodes, self.ledger = PodCache(NO_SERVER), NodeCache(NO_SERVER), Ledger()
        self.pods.on_use, self.nodes.on_offer = self.ledger.pod_changed, self.ledger.node_changed
        self.reservations: dict[str, Reservation] = {}

    def happens(self, kind: str, what: Any) -> None:
        pods, nodes = self.pods.reflectors[0], self.nodes.reflectors[0]
        match kind:
            case "node":
                what["metadata"]["uid"] = f"{what['metadata']['name']}/{what['metadata']['uid']}"
                nodes._put(what)
            case "no node":
                nodes._drop("/".join(what))
            case "pod":
                pods._put(what)
            case "no pod":
                pods._drop(what["metadata"]["uid"])
            case "reserve":
                self.reservations[what.job_uid] = what
                self.ledger.reserve(what)
            case "release":
                self.reservations.pop(what, None)
                self.ledger.release(what)

    def afresh(self) -> Snapshot:
        return snapshot(self.nodes.capacities(), self.pods.usage(), self.reservations.values())


def agree(kept: Snapshot, counted: Snapshot) -> None:
    def by_name(s: Snapshot) -> list[Any]:
        return sorted(s.nodes, key=lambda node: node.name)

    assert by_name(kept) == by_name(counted)
    assert kept.free == counted.free
    assert kept.own == counted.own
    assert kept.exclusive == counted.exclusive
    assert kept.without_gangs().free == counted.without_gangs().free
    for rules in RULES:
        assert kept.takers(rules) == counted.takers(rules)
        assert kept.obstacles(rules) == counted.obstacles(rules)


@settings(max_examples=150, deadline=None)
@given(histories)
def test_kept_step_by_step_it_equals_a_full_count(history: list[tuple[str, Any]]) -> None:
    account = Account()
    seen: list[tuple[Snapshot, Snapshot]] = []
    for kind, what in history:
        before = account.ledger.generation, account.afresh()
        account.happens(kind, what)
        if kind == "look":
            counted = account.afresh()
            seen.append((account.ledger.snapshot(), counted))
            agree(*seen[-1])
        if account.ledger.generation == before[0]:
            agree(account.afresh(), before[1])
    agree(account.ledger.snapshot(), account.afresh())
    for kept, counted in seen:
        agree(kept, counted)  # A snapshot stays as it was taken.


def test_a_pod_that_takes_its_reserved_place_changes_nothing() -> None:
    """A gang of thousands starts without the queue being looked through for each of its pods."""
    ledger = Ledger()
    ledger.node_changed("n1", a_node("n1", gpus=8))
    ledger.reserve(a_reservation("u", {0: "n1"}, gpus=2))
    use = PodUse.parse(a_gang_pod("u", 0, 1, "n1", gpus=2))
    before = ledger.generation
    ledger.pod_changed(None, use)
    assert ledger.generation == before
    ledger.release("u")
    assert ledger.snapshot().free["n1"].gpus == 6
    ledger.pod_changed(use, None)
    assert ledger.snapshot().free["n1"].gpus == 8


@pytest.mark.parametrize("node", ["n1", "n2"], ids=["reserved there", "bound elsewhere"])
def test_a_reserved_place_counts_once_wherever_its_pod_sits(node: str) -> None:
    ledger = Ledger()
    for name in ("n1", "n2"):
        ledger.node_changed(name, a_node(name, gpus=8))
    ledger.reserve(a_reservation("u", {0: "n1"}, gpus=2))
    ledger.pod_changed(None, PodUse.parse(a_gang_pod("u", 0, 1, node, gpus=2)))
    assert {name: free.gpus for name, free in ledger.snapshot().free.items()} == {"n1": 8, "n2": 8} | {node: 6}


def test_what_may_make_room_is_told_apart_from_what_takes_it() -> None:
    ledger = Ledger()
    ledger.node_changed("n1", a_node("n1", gpus=8))
    freed = ledger.freed
    use = PodUse.parse(a_pod("n1", gpus=1))
    ledger.pod_changed(None, use)
    ledger.reserve(a_reservation("u", {0: "n1"}, gpus=2))
    assert ledger.freed == freed
    ledger.pod_changed(use, None)
    ledger.release("u")
    ledger.node_changed("n1", a_node("n1", gpus=4))
    assert ledger.freed == freed + 3


def test_nothing_is_left_of_what_is_gone() -> None:
    ledger = Ledger()
    uses = [PodUse.parse(a_gang_pod("u", i, 1, "n1", gpus=1)) for i in range(3)]
    ledger.node_changed("n1", a_node("n1", gpus=8))
    ledger.reserve(a_reservation("u", {0: "n1"}, gpus=1))
    for use in uses:
        ledger.pod_changed(None, use)
    ledger.release("u")
    for use in uses:
        ledger.pod_changed(use, None)
    ledger.node_changed("n1", None)
    left = {
        key: value for key, value in vars(ledger).items() if key in ("_used", "_foreign", "_free", "_own", "_filled")
    }
    assert not any(left.values()), left


def test_requests_are_those_of_the_reservation_even_if_the_pod_asks_for_more() -> None:
    ledger = Ledger()
    ledger.node_changed("n1", a_node("n1", gpus=8))
    ledger.reserve(a_reservation("u", {0: "n1"}, gpus=2))
    ledger.pod_changed(None, PodUse.parse(a_gang_pod("u", 0, 1, "n1", gpus=3)))
    assert ledger.snapshot().free["n1"].gpus == 5
    assert ledger.snapshot().own == {"u": {"n1": amount(gpus=3)}}
