"""What every node has left, from its pods and from the reservations of committed plans.

Foreign pods and DaemonSets count, and so do pods that are being deleted: they occupy until they are gone. A reserved
place counts once: as the pod, if a living pod of that incarnation is bound, else as the reservation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright.placement.model import NodeCapacity, Reservation, Snapshot
from meshwright.placement.supply.requests import pod_requests
from meshwright.placement.supply.resources import NOTHING, Resources
from meshwright_api import names


@dataclass(frozen=True, slots=True)
class PodUse:
    """What one bound pod holds of its node."""

    node: str
    resources: Resources
    job_uid: str = ""
    """UID of the TrainingJob that owns it; empty for a foreign pod."""
    role: str = ""
    index: int = 0
    incarnation: int = 0

    @classmethod
    def parse(cls, pod: Mapping[str, Any]) -> PodUse | None:
        """Reads a Pod object; None if it holds nothing, because it is not bound or has ended.

        Raises:
            InvalidQuantity: a request is no quantity.
        """
        node = (pod.get("spec") or {}).get("nodeName")
        if not node or (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return None
        resources = pod_requests(pod)
        metadata = pod.get("metadata") or {}
        job, uid = _owning_job(metadata)
        place = names.parse_pod_name(metadata.get("name", ""), job, uid) if uid else None
        # One that is owned but made by somebody else takes room, and fills no place of a gang.
        return cls(node, resources, uid, *place) if place else cls(node, resources)


def snapshot(
    nodes: Iterable[NodeCapacity], pods: Iterable[PodUse], reservations: Iterable[Reservation] = ()
) -> Snapshot:
    """What is taken of every node, in all and by each gang.

    Args:
        nodes: every node of the cluster.
        pods: every bound pod that has not ended, our own included.
        reservations: of every job that holds places, the ones of its current incarnation.
    """
    used: dict[str, Resources] = {}
    own: dict[str, dict[str, Resources]] = {}

    def take(node: str, amount: Resources, job_uid: str) -> None:
        used[node] = used.get(node, NOTHING) + amount
        if job_uid:
            mine = own.setdefault(job_uid, {})
            mine[node] = mine.get(node, NOTHING) + amount

    exclusive: dict[str, str] = {}
    filled: set[tuple[str, int, str, int]] = set()
    for pod in pods:
        take(pod.node, pod.resources, pod.job_uid)
        if pod.job_uid:
            filled.add((pod.job_uid, pod.incarnation, pod.role, pod.index))
    for reservation in reservations:
        if reservation.exclusive:
            exclusive[reservation.job_uid] = reservation.exclusive
        for (role, index), node in reservation.nodes.items():
            if (reservation.job_uid, reservation.incarnation, role, index) not in filled:
                take(node, reservation.requests[role], reservation.job_uid)
    every = tuple(nodes)
    free = {node.name: node.allocatable - used.get(node.name, NOTHING) for node in every}
    return Snapshot(every, free, own, exclusive=exclusive)


def _owning_job(metadata: Mapping[str, Any]) -> tuple[str, str]:
    """Name and UID."""
    for owner in metadata.get("ownerReferences") or ():
        group = owner.get("apiVersion", "").partition("/")[0]
        if owner.get("controller") and owner.get("kind") == names.KIND and group == names.GROUP:
            return str(owner.get("name", "")), str(owner.get("uid", ""))
    return "", ""
