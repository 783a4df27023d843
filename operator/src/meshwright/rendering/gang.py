"""From a job to everything that its gang consists of. The one door to this package."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from meshwright.placement.model import GangRequest, Member, Placed, Reservation, RoleRequest
from meshwright.placement.queueing.claims import Claim
from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.requests import pod_requests
from meshwright.rendering.agent import heartbeat
from meshwright.rendering.errors import PlanMismatch, RenderingError, Unrenderable
from meshwright.rendering.fabric.domains import compute_domains, domain_names
from meshwright.rendering.fabric.ports import block
from meshwright.rendering.fabric.profile import Profile
from meshwright.rendering.frozen import FrozenPlan
from meshwright.rendering.isolation import isolates, network_policy
from meshwright.rendering.objects import service, variables_map
from meshwright.rendering.pod import pod_stencil
from meshwright.rendering.seats import groups, levels, note
from meshwright.rendering.settings import RenderSettings
from meshwright.rendering.wishes import with_wishes
from meshwright.rendering.world import World
from meshwright_api.job import TrainingJob
from meshwright_api.launch_plan import Fence, JobRef, LaunchPlan

__all__ = [
    "FrozenPlan",
    "Ground",
    "PlanMismatch",
    "RenderSettings",
    "RenderingError",
    "Unrenderable",
    "freeze",
    "note",
    "pod_manifest",
    "request",
    "reservation",
    "service_manifest",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Ground:
    """What rendering must know of the nodes that a gang was given."""

    ports: tuple[range, ...] = ()
    """Ports of other gangs on the host network of those nodes."""
    cliques: Mapping[str, str] = field(default_factory=dict)
    """NVLink domain of each node, where pods share a ComputeDomain."""


def request(
    job: TrainingJob,
    *,
    priority: int = 0,
    avoid: frozenset[str] = frozenset(),
    prefer: Mapping[Member, str] | None = None,
    profile: Profile | None = None,
) -> GangRequest:
    """What the job's gang asks of the cluster.

    Args:
        job: a job without problems.
        priority: value of its PriorityClass.
        avoid: nodes that are used only if nothing else will do.
        prefer: its places of before, when it is being restarted.
        profile: what is laid under its templates.
    """
    world = World.of(job, 0, profile)
    roles = []
    for role in world.roles:
        manifest = pod_stencil(world, role, job.spec, RenderSettings(), pin=False).manifest
        rules = NodeRules.parse(manifest["spec"])
        claim = Claim.of(manifest)
        roles.append(RoleRequest(role.name, role.replicas, pod_requests(manifest), rules, claim=claim))
    asked, layout = with_wishes(world, job.spec, tuple(roles))
    return GangRequest(
        job_uid=job.metadata.uid,
        namespace=job.metadata.namespace,
        name=job.metadata.name,
        roles=asked,
        created=job.metadata.creation_timestamp or _EPOCH,
        priority=priority,
        avoid=avoid,
        prefer=prefer or {},
        layout=layout,
    )


def freeze(
    job: TrainingJob,
    *,
    attempt: int,
    incarnation: int,
    request: GangRequest,
    placed: Placed | None,
    settings: RenderSettings,
    ground: Ground | None = None,
) -> FrozenPlan:
    """Plans and renders one incarnation of the gang. Equal input gives equal bytes.

    Args:
        job: a job without problems and with at least one pod.
        attempt: number of the process generation that the pods start with.
        incarnation: number of the set of pods.
        request: what the gang asked for.
        placed: a node for every pod, in answer to the request; None leaves each pod to kube-scheduler.
        settings: the administrator's part.
        ground: what is known of its nodes.

    Raises:
        PortsTaken: no ports are left on the host network of its nodes.
    """
    ground = ground or Ground()
    nodes = placed.nodes if placed else {}
    world = World.of(job, incarnation, settings.profile)
    if world.on_host_network:
        world = replace(world, ports=block(world.identity, nodes, ground.ports))
    seating = placed.seating if placed else None
    plan = LaunchPlan(
        job=JobRef(name=job.metadata.name, namespace=job.metadata.namespace, uid=job.metadata.uid),
        attempt=attempt,
        incarnation=incarnation,
        roles=world.role_plans(),
        world_size=world.size,
        mesh=world.mesh(),
        groups=groups(seating, world.role_plans()) if seating else (),
        levels=levels(seating, mesh_known=world.trainer is not None) if seating else (),
        exclusive=request.layout.exclusive if request.layout else "",
        heartbeat=heartbeat(world, settings, job.spec.health.heartbeat_timeout_seconds),
        trainer=world.trainer,
        rendezvous=world.rendezvous(),
        fence=Fence(attempt=attempt),
    )
    pin = placed is not None
    pods = {role.name: pod_stencil(world, role, job.spec, settings, pin=pin) for role in world.roles}
    on_fabric = {member: node for member, node in nodes.items() if member[0] in world.on_fabric}
    domains = domain_names(job.metadata, on_fabric, ground.cliques)
    objects = []
    if settings.isolate and isolates(stencil.manifest for stencil in pods.values()):
        objects.append(network_policy(job.metadata, settings.scrapers))
    if world.reads_maps and world.profile is not None:
        objects.append(variables_map(job.metadata, incarnation, world.profile.env))
    objects += compute_domains(job.metadata, domains.values())
    requests = {role.role: role.resources for role in request.roles}
    return FrozenPlan.make(plan, pods, requests, placed, objects, world.ports, domains)


def reservation(frozen: FrozenPlan) -> Reservation:
    """What the gang holds of the cluster from the commit of its plan on."""
    plan = frozen.launch_plan
    return Reservation(plan.job.uid, frozen.incarnation, frozen.nodes, frozen.requests, plan.exclusive)


def service_manifest(frozen: FrozenPlan) -> dict[str, Any]:
    """The headless Service by which the pods find each other; the same for every incarnation."""
    return service(frozen.job)


def pod_manifest(frozen: FrozenPlan, role: str, index: int) -> dict[str, Any]:
    """One pod of the incarnation. Its name follows from its place, so that it can be created at most once.

    Raises:
        KeyError: there is no such pod in the plan.
    """
    roles = frozen.launch_plan.roles
    plan = next((r for r in roles if r.name == role), None)
    if plan is None or not 0 <= index < plan.replicas:
        raise KeyError(f"no pod {index} of role {role!r} in the plan of job {frozen.launch_plan.job.name!r}")
    before = sum(r.replicas for r in roles[: roles.index(plan)])
    return frozen.pods[role].fill(
        {
            "index": str(index),
            "incarnation": str(frozen.incarnation),
            "rank": str(plan.first_rank + index * plan.processes_per_pod),
            "pod": str(before + index),
            "node": frozen.nodes.get((role, index), ""),
            "plan": frozen.sha256,
            "metrics": str(frozen.ports[1 + frozen.slots.get((role, index), 0)]) if frozen.ports else "",
            "compute_domain": frozen.domains.get((role, index), ""),
        }
    )
