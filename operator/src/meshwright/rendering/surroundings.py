"""Whether a job can have pods where it is, and with which profile; asked before it may queue for a place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.requests import pod_requests
from meshwright.rendering.errors import PodSecurityConflict
from meshwright.rendering.fabric.choosing import chosen
from meshwright.rendering.fabric.profile import Profile
from meshwright.rendering.fabric.reading import Profiles
from meshwright.rendering.pod import pod_stencil
from meshwright.rendering.pod_security import violations
from meshwright.rendering.settings import RenderSettings
from meshwright.rendering.world import World
from meshwright_api.job import TrainingJob


def suited(
    job: TrainingJob, settings: RenderSettings, profiles: Profiles, nodes: Callable[[], Sequence[NodeCapacity]]
) -> RenderSettings:
    """The settings with the profile that the job gets.

    Args:
        job: a job without problems.
        settings: for its namespace.
        profiles: the administrator's.
        nodes: every node; called only if the profile is chosen by them.

    Raises:
        UnknownProfile: the job names a profile that there is not.
        PodSecurityConflict: its namespace would refuse its pods.
    """
    settings = replace(settings, profile=_profile(job, profiles, nodes))
    _check_pod_security(job, settings)
    return settings


def _profile(job: TrainingJob, profiles: Profiles, nodes: Callable[[], Sequence[NodeCapacity]]) -> Profile | None:
    if job.spec.profile:
        return profiles.named(job.spec.profile)
    by_nodes = Profiles(tuple(profile for profile in profiles.all if profile.nodes is not None))
    if not by_nodes.all:
        return None
    world = World.of(job, 0)
    with_gpus = [role for role in world.roles if role.gpus_per_pod]
    pods = [
        pod_stencil(world, role, job.spec, settings=RenderSettings(), pin=False).manifest
        for role in with_gpus or world.roles
    ]
    return chosen(by_nodes, ((pod["spec"], pod_requests(pod)) for pod in pods), nodes())


def _check_pod_security(job: TrainingJob, settings: RenderSettings) -> None:
    refused = tuple(dict.fromkeys(_violations(job, settings)))
    if not refused:
        return
    own = frozenset(_violations(job, replace(settings, profile=None))) if settings.profile else frozenset(refused)
    first = next((field for field in refused if field not in own), refused[0])
    level = settings.pod_security
    whose, instead = "the template", f"leave it out, or use a namespace that does not enforce {level}"
    if settings.profile is not None and first not in own:
        whose = f"profile {settings.profile.name}"
        instead = f"set spec.profile to another one, or use a namespace that does not enforce {level}"
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    raise PodSecurityConflict(
        f"{first}{more}, of {whose}, is refused by Pod Security level {level}, which namespace "
        f"{job.metadata.namespace} enforces; {instead}"
    )


def _violations(job: TrainingJob, settings: RenderSettings) -> Iterator[str]:
    if not settings.pod_security:
        return
    world = World.of(job, 0, settings.profile)
    for role in world.roles:
        pod = pod_stencil(world, role, job.spec, settings, pin=False).manifest
        yield from (f"spec.roles[{role.name}]: {field}" for field in violations(pod["spec"], settings.pod_security))
