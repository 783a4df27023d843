"""What a waiting job is told: counts by cause, and no other tenant's names."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright.placement.model import GangRequest, Snapshot
from meshwright.placement.reasons import describe
from meshwright.placement.solver import FirstFit
from tests.controller.placement.clusters import a_gang, a_node, a_pod, a_reservation, a_role, a_snapshot, amount


def told(gang: GangRequest, snapshot: Snapshot) -> str:
    assert FirstFit().place(gang, snapshot) is None
    return FirstFit().why_not(gang, snapshot).message


def test_every_node_is_counted_under_its_cause() -> None:
    nodes = [
        a_node("n0", gpus=8),
        a_node("n1", gpus=8),
        a_node("n2", gpus=8),
        a_node("n3", gpus=8, cordoned=True),
        a_node("n4", gpus=8, ready="False"),
        a_node("n5", gpus=8, taints=["team=x:NoSchedule"]),
        a_node("n6", gpus=4),
    ]
    snapshot = a_snapshot(nodes, [a_pod("n1", gpus=1)], [a_reservation("other", {0: "n2"}, cpu=8)])
    assert told(a_gang("u", a_role(4, gpus=8, cpu=2, memory="1Gi")), snapshot) == (
        "4 pods of role worker each need 8 nvidia.com/gpu, 2 cpu, 1Gi memory; there is room for 1: of 7 nodes "
        "1 with room, 1 busy (nvidia.com/gpu), 1 busy (cpu), 1 too small (nvidia.com/gpu), 1 cordoned, 1 not ready, "
        "1 with a taint that the pods do not tolerate"
    )


def test_only_the_roles_that_do_not_fit_are_named() -> None:
    message = told(a_gang("u", a_role(1, "ps", cpu=1), a_role(1, gpus=1)), a_snapshot([a_node("n0")]))
    assert message == (
        "1 pod of role worker needs 1 nvidia.com/gpu; there is room for 0: of 1 node 1 too small (nvidia.com/gpu)"
    )


def test_roles_that_fit_alone_but_not_together() -> None:
    message = told(a_gang("u", a_role(2, "a", cpu=4), a_role(2, "b", cpu=4)), a_snapshot([a_node("n0", cpu=8)]))
    assert message == "each role alone would fit, but not all 4 pods of the gang together"


def test_a_cluster_without_nodes() -> None:
    assert told(a_gang("u", a_role(2)), a_snapshot([])).endswith("room for 0: the cluster has no nodes")


def test_nodes_kept_for_others_are_counted_as_such() -> None:
    snapshot = a_snapshot([a_node("n0"), a_node("n1")]).holding(frozenset({"n0"}))
    assert told(a_gang("u", a_role(2, cpu=8)), snapshot).endswith("of 2 nodes 1 kept for jobs ahead, 1 with room")


def test_no_name_of_a_node_or_of_another_job_is_told() -> None:
    nodes = [a_node(f"secret-{i}", cordoned=i == 0, gpus=i) for i in range(3)]
    pods = [a_pod("secret-2", name="secret-pod", cpu=1)]
    snapshot = a_snapshot(nodes, pods, [a_reservation("secret-job", {0: "secret-1"}, gpus=1)])
    assert "secret" not in told(a_gang("u", a_role(9, gpus=1)), snapshot)


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        ({}, "no resources"),
        ({"cpu": "250m"}, "250m cpu"),
        ({"cpu": "1500m"}, "1.5 cpu"),
        ({"cpu": "96"}, "96 cpu"),
        ({"memory": "512Gi"}, "512Gi memory"),
        ({"memory": "1Ti"}, "1Ti memory"),
        (
            {"gpus": 8, "other": {"rdma/ib": 1, "ephemeral-storage": "10Gi"}},
            "8 nvidia.com/gpu, 10Gi ephemeral-storage, 1 rdma/ib",
        ),
    ],
)
def test_amounts_are_written_as_people_write_them(request_: dict[str, Any], text: str) -> None:
    assert describe(amount(**request_)) == text
