"""What a gang asks of the cluster is what its rendered pods will ask of their nodes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.requests import pod_requests
from meshwright.placement.supply.resources import Resources
from meshwright.rendering.gang import pod_manifest, request
from tests.controller.rendering.jobs import TORCHRUN, UID, a_container, a_job, a_role, a_trained_job, frozen


def test_a_gang_asks_for_what_its_pods_will_hold() -> None:
    busy: dict[str, Any] = {"resources": {"requests": {"cpu": "4", "memory": "1Gi"}}}
    job = a_job(
        a_role(2, *TORCHRUN, gpus_per_pod=8, container=busy, initContainers=[a_container(name="i", **busy)]),
        a_role(1, name="ps", overhead={"cpu": "1"}),
    )
    roles = request(job).roles
    assert [(role.role, role.replicas, role.resources) for role in roles] == [
        ("worker", 2, Resources(cpu=4000, memory=2**30, gpus=8, pods=1)),
        ("ps", 1, Resources(cpu=1000, pods=1)),
    ]
    for role in roles:
        assert pod_requests(pod_manifest(frozen(job), role.role, 0)) == role.resources


def test_a_gang_asks_for_nodes_as_its_template_does() -> None:
    spec: dict[str, Any] = {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}
    assert request(a_job(a_role(**spec))).roles[0].rules == NodeRules.parse(spec)


def test_a_role_without_pods_asks_for_nothing() -> None:
    """K43: 0 replicas means none."""
    assert [role.role for role in request(a_job(a_role(0, name="ps"), a_role(1))).roles] == ["worker"]


def test_whose_turn_it_is_follows_from_the_job() -> None:
    asked = request(a_job(), priority=7, avoid=frozenset({"n"}), prefer={("worker", 0): "m"})
    assert (asked.job_uid, asked.namespace, asked.name) == (UID, "team", "demo")
    assert asked.created == datetime(2026, 1, 1, tzinfo=UTC)
    assert (asked.priority, asked.avoid, asked.prefer) == (7, frozenset({"n"}), {("worker", 0): "m"})


def test_a_mesh_over_several_pods_is_laid_out_as_a_grid_of_pods() -> None:
    """With two processes in a pod, the shards of a replica are in one, and only replicas are between pods."""
    role = {"name": "worker", "processesPerPod": 2}
    layout = request(a_trained_job(role, parallelism={"data": 4, "shard": 2, "shardStage": 3})).layout
    assert layout is not None
    assert [(axis.name, axis.size) for axis in layout.axes if axis.size > 1] == [("data", 4)]
    assert layout.pods == 4


@pytest.mark.parametrize(
    ("roles", "pods"),
    [
        ([a_role(4, gpus_per_pod=8)], 4),
        ([a_role(1, name="master", gpus_per_pod=8), a_role(3, gpus_per_pod=8)], 4),
        ([a_role(4, gpus_per_pod=8), a_role(2, name="ps")], 4),
        ([a_role(4)], None),
        ([a_role(1, gpus_per_pod=8)], None),
    ],
    ids=["workers", "master", "servers beside", "no GPUs", "one pod"],
)
def test_pods_with_gpus_want_to_be_close_to_each_other(roles: list[dict[str, Any]], pods: int | None) -> None:
    layout = request(a_job(*roles)).layout
    assert (layout and layout.pods) == pods
