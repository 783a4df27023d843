"""Builders of nodes, pods and gangs, in the form the API server has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import HealthCheck, settings

from meshwright.placement.model import GangRequest, Member, Reservation, RoleRequest, Snapshot
from meshwright.placement.supply.capacity import PodUse, snapshot
from meshwright.placement.supply.eligibility import ANYWHERE, NodeRules
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.requests import ONE_POD
from meshwright.placement.supply.resources import Resources
from meshwright_api import names

# Small examples find what there is to find. The machine may be busy, so no example fails for being slow.
a_few = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
T0 = datetime(2026, 1, 1, tzinfo=UTC)


def a_node(
    name: str,
    *,
    cpu: object = 8,
    memory: object = "32Gi",
    gpus: int = 0,
    pods: int = 110,
    labels: Mapping[str, str] | None = None,
    taints: Iterable[str] = (),
    cordoned: bool = False,
    ready: str = "True",
    other: Mapping[str, object] | None = None,
) -> NodeCapacity:
    """A node read from its object; a taint is written `key=value:Effect`."""
    allocatable = {"cpu": cpu, "memory": memory, "pods": pods, "nvidia.com/gpu": gpus, **(other or {})}
    spec: dict[str, Any] = {"taints": [_taint(taint) for taint in taints]}
    if cordoned:
        spec["unschedulable"] = True
    return NodeCapacity.parse(
        {
            "metadata": {"name": name, "labels": dict(labels or {})},
            "spec": spec,
            "status": {
                "allocatable": {key: str(value) for key, value in allocatable.items()},
                "conditions": [{"type": "MemoryPressure", "status": "False"}, {"type": "Ready", "status": ready}],
            },
        }
    )


def _taint(text: str) -> dict[str, str]:
    rest, _, effect = text.rpartition(":")
    key, _, value = rest.partition("=")
    return {"key": key, "effect": effect} | ({"value": value} if value else {})


def a_pod(
    node: str | None = "n1",
    *,
    name: str = "p",
    job: str = "",
    uid: str = "",
    phase: str = "Running",
    deleting: bool = False,
    cpu: object = 0,
    gpus: int = 0,
) -> dict[str, Any]:
    """A Pod object; with `job` and `uid` it is owned by that TrainingJob."""
    metadata: dict[str, Any] = {"name": name}
    if job:
        owner = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": job, "uid": uid, "controller": True}
        metadata["ownerReferences"] = [owner]
    if deleting:
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    container = {"name": "c", "resources": {"requests": {"cpu": str(cpu), "nvidia.com/gpu": str(gpus)}}}
    spec: dict[str, Any] = {"containers": [container]}
    if node is not None:
        spec["nodeName"] = node
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def a_gang_pod(uid: str, index: int, incarnation: int, node: str | None, **kwargs: Any) -> dict[str, Any]:
    """Pod `index` of role `worker` of job `job`."""
    return a_pod(node, name=names.pod_name("job", uid, "worker", index, incarnation), job="job", uid=uid, **kwargs)


def amount(
    *, cpu: object = 0, memory: object = 0, gpus: int = 0, other: Mapping[str, object] | None = None
) -> Resources:
    """What one pod asks for, the pod itself included."""
    return Resources.parse({"cpu": cpu, "memory": memory, "nvidia.com/gpu": gpus, **(other or {})}) + ONE_POD


def a_role(replicas: int, role: str = "worker", rules: NodeRules = ANYWHERE, **request: Any) -> RoleRequest:
    return RoleRequest(role, replicas, amount(**request), rules)


def a_gang(
    uid: str,
    *roles: RoleRequest,
    after: int = 0,
    priority: int = 0,
    avoid: Iterable[str] = (),
    prefer: Mapping[Member, str] | None = None,
) -> GangRequest:
    """A gang whose job was made `after` seconds after the first."""
    created = T0 + timedelta(seconds=after)
    return GangRequest(uid, "team", f"job-{uid}", roles, created, priority, frozenset(avoid), prefer or {})


def a_snapshot(
    nodes: Iterable[NodeCapacity], pods: Iterable[Mapping[str, Any]] = (), reservations: Iterable[Reservation] = ()
) -> Snapshot:
    uses = (PodUse.parse(pod) for pod in pods)
    return snapshot(nodes, [use for use in uses if use], reservations)


def a_reservation(uid: str, nodes: Mapping[int, str], incarnation: int = 1, **request: Any) -> Reservation:
    """Places of role `worker`, by index."""
    places = {("worker", index): node for index, node in nodes.items()}
    return Reservation(uid, incarnation, places, {"worker": amount(**request)})
