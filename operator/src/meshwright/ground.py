"""What rendering must know of the nodes that a gang was given, gathered from what this process remembers."""

from __future__ import annotations

from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.gang_queue import GangQueue
from meshwright.jobs import Jobs
from meshwright.placement.model import Placed
from meshwright.rendering.fabric.profile import CLIQUE_LABEL, Profile
from meshwright.rendering.gang import Ground


def ground_of(
    jobs: Jobs, pods: PodCache, nodes: NodeCache, queue: GangQueue, placed: Placed, profile: Profile | None
) -> Ground:
    """The ports that are taken on the nodes of the placed gang, and their NVLink domains if its profile asks for them.

    A gang's ports are taken from the offer of its place until it holds no place and no pod of it is left.
    """
    here = frozenset(placed.nodes.values())
    ports = []
    for uid in jobs.uids():
        known = jobs.get(uid)
        frozen = known.memory.frozen if known else None
        if frozen is None or frozen.ports is None or here.isdisjoint(frozen.nodes.values()):
            continue
        if queue.held_by(uid) is not None or any(not pod.ended for pod in pods.gang(uid)):
            ports.append(frozen.ports)
    return Ground(tuple(ports), _cliques(nodes, here) if profile is not None and profile.compute_domain else {})


def _cliques(nodes: NodeCache, names: frozenset[str]) -> dict[str, str]:
    records = {name: nodes.get(name) for name in names}
    return {name: record.capacity.labels.get(CLIQUE_LABEL, "") for name, record in records.items() if record}
