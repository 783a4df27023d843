"""From a job to everything that its gang consists of. The one door to this package."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from meshwright.placement.eligibility import NodeRules
from meshwright.placement.model import GangRequest, Member, Placed, RoleRequest
from meshwright.placement.requests import pod_requests
from meshwright.rendering.errors import PlanBroken, RenderingError
from meshwright.rendering.frozen import FrozenPlan
from meshwright.rendering.objects import service_manifest
from meshwright.rendering.pod import pod_stencil
from meshwright.rendering.settings import RenderSettings
from meshwright.rendering.world import World
from meshwright_api.job import TrainingJob
from meshwright_api.launch_plan import Fence, JobRef, LaunchPlan

__all__ = [
    "FrozenPlan",
    "PlanBroken",
    "RenderSettings",
    "RenderingError",
    "freeze",
    "pod_manifest",
    "request",
    "service_manifest",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def request(
    job: TrainingJob,
    *,
    priority: int = 0,
    avoid: frozenset[str] = frozenset(),
    prefer: Mapping[Member, str] | None = None,
) -> GangRequest:
    """What the job's gang asks of the cluster.

    Args:
        job: a job without problems.
        priority: value of its PriorityClass.
        avoid: nodes that are used only if nothing else will do.
        prefer: its places of before, when it is being restarted.

    Raises:
        InvalidQuantity: a request or limit in a template is no quantity.
    """
    world = World.of(job, incarnation=0)
    roles = []
    for role in world.roles:
        manifest = pod_stencil(world, role, job.spec, RenderSettings(), pin=False).manifest
        rules = NodeRules.parse(manifest["spec"])
        roles.append(RoleRequest(role.name, role.replicas, pod_requests(manifest), rules))
    return GangRequest(
        job_uid=job.metadata.uid,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        roles=tuple(roles),
        created=job.metadata.creation_timestamp or _EPOCH,
        priority=priority,
        avoid=avoid,
        prefer=prefer or {},
    )


def freeze(
    job: TrainingJob, attempt: int, incarnation: int, placed: Placed | None, settings: RenderSettings
) -> FrozenPlan:
    """Plans and renders one incarnation of the gang. Equal input gives equal bytes.

    Args:
        job: a job without problems and with at least one pod.
        attempt: number of the process generation that the pods start with.
        incarnation: number of the set of pods.
        placed: a node for every pod; None leaves each pod to kube-scheduler.
        settings: the administrator's part.
    """
    world = World.of(job, incarnation)
    plan = LaunchPlan(
        job=JobRef(name=job.metadata.name, namespace=job.metadata.namespace, uid=job.metadata.uid),
        attempt=attempt,
        incarnation=incarnation,
        roles=world.role_plans(),
        world_size=world.size,
        rendezvous=world.rendezvous(),
        fence=Fence(attempt=attempt),
    )
    pin = placed is not None
    pods = {role.name: pod_stencil(world, role, job.spec, settings, pin=pin) for role in world.roles}
    return FrozenPlan.make(plan, pods, placed)


def pod_manifest(frozen: FrozenPlan, role: str, index: int) -> dict[str, Any]:
    """One pod of the incarnation. Its name follows from its place, so that it can be created at most once.

    Raises:
        KeyError: there is no such pod in the plan.
    """
    name = frozen.launch_plan.host(role, index)
    roles = frozen.launch_plan.roles
    plan = next(r for r in roles if r.name == role)
    before = sum(r.replicas for r in roles[: roles.index(plan)])
    manifest = frozen.pods[role].fill(
        {
            "index": str(index),
            "incarnation": str(frozen.incarnation),
            "rank": str(plan.first_rank + index * plan.processes_per_pod),
            "pod": str(before + index),
            "node": frozen.nodes.get((role, index), ""),
            "plan": frozen.sha256,
        }
    )
    assert manifest["metadata"]["name"] == name
    return manifest
