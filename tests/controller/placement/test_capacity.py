"""What is left of a node: foreign pods, terminating pods, and reservations, each counted once."""

from __future__ import annotations

import pytest

from meshwright.placement.model import Placed, Snapshot
from meshwright.placement.supply.capacity import PodUse
from meshwright.placement.supply.resources import Resources
from tests.controller.placement.clusters import a_gang, a_gang_pod, a_node, a_pod, a_reservation, a_role, a_snapshot


def free_gpus(snapshot: Snapshot, node: str = "n1", uid: str = "other") -> int:
    return snapshot.free_for(a_gang(uid))[node].gpus


NODES = (a_node("n1", gpus=8), a_node("n2", gpus=8))


def test_an_empty_node_has_all_that_is_allocatable() -> None:
    snapshot = a_snapshot([a_node("n1", cpu="3500m", memory="1Gi", gpus=8, pods=9, other={"rdma/ib": 1})])
    expected = Resources(cpu=3500, memory=2**30, gpus=8, pods=9, other=(("rdma/ib", 1),))
    assert snapshot.free_for(a_gang("u"))["n1"] == expected


def test_foreign_pods_and_daemon_sets_count_with_the_pod_that_they_are() -> None:
    snapshot = a_snapshot([a_node("n1", cpu=4, pods=3)], [a_pod(cpu=1), a_pod(cpu="500m")])
    left = snapshot.free_for(a_gang("u"))["n1"]
    assert (left.cpu, left.pods) == (2500, 1)


@pytest.mark.parametrize(
    ("pod", "taken"),
    [
        (a_pod(gpus=1), 1),
        (a_pod(phase="Pending", gpus=1), 1),
        (a_pod(deleting=True, gpus=1), 1),
        (a_pod(phase="Unknown", gpus=1), 1),
        (a_pod(None, phase="Pending", gpus=1), 0),
        (a_pod(phase="Succeeded", gpus=1), 0),
        (a_pod(phase="Failed", deleting=True, gpus=1), 0),
        (a_pod("gone", gpus=1), 0),
    ],
    ids=["runs", "starts", "is being deleted", "on a silent node", "not bound", "succeeded", "failed", "on no node"],
)
def test_a_pod_takes_room_from_its_binding_to_its_end(pod: dict[str, object], taken: int) -> None:
    assert free_gpus(a_snapshot(NODES, [pod])) == 8 - taken


def test_a_reservation_takes_room_before_there_is_any_pod() -> None:
    snapshot = a_snapshot(NODES, [], [a_reservation("u", {0: "n1", 1: "n1", 2: "n2"}, gpus=2)])
    assert (free_gpus(snapshot, "n1"), free_gpus(snapshot, "n2")) == (4, 6)


def test_a_reserved_place_whose_pod_is_bound_counts_once() -> None:
    pods = [a_gang_pod("u", 0, 1, "n1", gpus=2)]
    snapshot = a_snapshot(NODES, pods, [a_reservation("u", {0: "n1", 1: "n1"}, gpus=2)])
    assert free_gpus(snapshot) == 4


def test_a_reserved_place_whose_pod_is_not_bound_yet_still_counts() -> None:
    pods = [a_gang_pod("u", 0, 1, None, phase="Pending", gpus=2)]
    assert free_gpus(a_snapshot(NODES, pods, [a_reservation("u", {0: "n1"}, gpus=2)])) == 6


def test_a_pod_that_has_ended_leaves_its_place_reserved() -> None:
    pods = [a_gang_pod("u", 0, 1, "n1", phase="Failed", gpus=2)]
    assert free_gpus(a_snapshot(NODES, pods, [a_reservation("u", {0: "n1"}, gpus=2)])) == 6


def test_a_pod_of_the_last_incarnation_occupies_beside_the_reservation_until_it_is_gone() -> None:
    pods = [a_gang_pod("u", 0, 1, "n1", deleting=True, gpus=2)]
    snapshot = a_snapshot(NODES, pods, [a_reservation("u", {0: "n1"}, incarnation=2, gpus=2)])
    assert free_gpus(snapshot) == 4


def test_another_jobs_pod_does_not_fill_a_reserved_place() -> None:
    pods = [a_gang_pod("v", 0, 1, "n1", gpus=2)]
    assert free_gpus(a_snapshot(NODES, pods, [a_reservation("u", {0: "n1"}, gpus=2)])) == 4


def test_what_a_gang_holds_is_free_to_itself() -> None:
    pods = [a_gang_pod("u", 0, 1, "n1", deleting=True, gpus=2), a_pod(gpus=1)]
    snapshot = a_snapshot(NODES, pods, [a_reservation("u", {1: "n1"}, gpus=3)])
    assert (free_gpus(snapshot), free_gpus(snapshot, uid="u")) == (2, 7)


def test_without_gangs_only_foreign_pods_remain() -> None:
    pods = [a_gang_pod("u", 0, 1, "n1", gpus=2), a_gang_pod("u", 1, 1, "gone", cpu=1), a_pod(gpus=1)]
    snapshot = a_snapshot(NODES, pods, [a_reservation("v", {0: "n1"}, gpus=3)])
    assert free_gpus(snapshot.without_gangs()) == 7


def test_a_gang_that_keeps_its_node_is_not_counted_twice_when_placed_again() -> None:
    snapshot = a_snapshot(NODES, [], [a_reservation("u", {0: "n1", 1: "n1"}, gpus=2)])
    gang = a_gang("u", a_role(2, gpus=2))
    moved = snapshot.with_placed(gang, Placed({("worker", 0): "n1", ("worker", 1): "n2"}))
    assert (free_gpus(moved, "n1"), free_gpus(moved, "n2")) == (4, 6), "what it leaves stays taken until it is gone"


def test_identity_comes_from_the_name_so_that_a_changed_label_frees_nothing() -> None:
    pod = a_gang_pod("u", 7, 3, "n1", cpu=1)
    pod["metadata"]["labels"] = {"meshwright.dev/index": "0", "meshwright.dev/role": "other"}
    use = PodUse.parse(pod)
    assert use
    assert (use.job_uid, use.role, use.index, use.incarnation) == ("u", "worker", 7, 3)


@pytest.mark.parametrize("name", ["p", "job-worker-0-1", "job-00000-worker-0-1", "worker-0-1"])
def test_a_pod_that_only_claims_to_be_of_the_gang_fills_no_place(name: str) -> None:
    use = PodUse.parse(a_pod(name=name, job="job", uid="u", cpu=1))
    assert use
    assert use.job_uid == ""


def test_an_owner_that_is_not_the_controlling_training_job_does_not_count() -> None:
    pod = a_gang_pod("u", 0, 1, "n1")
    pod["metadata"]["ownerReferences"][0]["controller"] = False
    use = PodUse.parse(pod)
    assert use
    assert use.job_uid == ""
