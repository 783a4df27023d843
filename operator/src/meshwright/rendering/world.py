"""Where every process of a gang stands, and where they meet.

Every role counts: ranks are numbered over the roles in the order of the spec, pod after pod, so a `master` that stands
before its `worker`s has rank 0, as scripts that come from a PyTorchJob expect. WORLD_SIZE counts processes, not pods.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from meshwright.rendering.fabric.laying import laid_under, needs_variables_map
from meshwright.rendering.fabric.ports import derived
from meshwright.rendering.fabric.profile import Profile
from meshwright_api import names
from meshwright_api.job import Metadata, TrainingJob
from meshwright_api.launch_plan import Axis, Rendezvous, RolePlan
from meshwright_api.resolve import ResolvedRole, resolve
from meshwright_api.spec import Agent
from meshwright_api.trainer_defaults import MESH_AXES

PORT_NAME: Final = "rendezvous"
"""A container port of that name in the first role's trained container is used as the rendezvous port."""


@dataclass(frozen=True)
class World:
    """One incarnation of a gang."""

    metadata: Metadata
    incarnation: int
    roles: tuple[ResolvedRole, ...]
    """In rank order, without the roles that have no pods."""
    agent: bool
    """Whether the agent wraps the trained command."""
    trainer: Mapping[str, Any] | None
    """Section of the built-in trainer with every default in it; None with the user's own image."""
    profile: Profile | None = None
    """What is laid under the templates; in `roles` it is already."""
    on_fabric: frozenset[str] = frozenset()
    """Roles that the profile is for."""
    reads_maps: bool = False
    """Whether the profile's variables must come from a ConfigMap."""
    ports: range | None = None
    """On the host's network, the ports that are the gang's: to meet at, then for the pods of a node."""

    @classmethod
    def of(cls, job: TrainingJob, incarnation: int, profile: Profile | None = None) -> World:
        """Works out the roles of a job."""
        resolved = resolve(job.spec)
        roles = tuple(role for role in resolved.roles if role.replicas > 0)
        world = cls(job.metadata, incarnation, roles, resolved.agent is Agent.INJECT, resolved.trainer)
        return (
            world if profile is None else world._laid_over(profile, frozenset(v.mount_path for v in job.spec.volumes))
        )

    def _laid_over(self, profile: Profile, mounted: frozenset[str]) -> World:
        """The same gang with a profile under the templates of its pods with GPUs; of all pods, where none has GPUs."""
        with_gpus = {role.name for role in self.roles if role.gpus_per_pod}
        chosen = frozenset(with_gpus or (role.name for role in self.roles))
        variables = names.variables_name(self.metadata.name, self.metadata.uid, self.incarnation)
        reads_maps = any(
            needs_variables_map(role.template, role.container, profile) for role in self.roles if role.name in chosen
        )
        roles = tuple(
            replace(
                role,
                template=laid_under(role.template, role.container, profile, mounted=mounted, variables=variables),
            )
            if role.name in chosen
            else role
            for role in self.roles
        )
        return replace(self, roles=roles, profile=profile, on_fabric=chosen, reads_maps=reads_maps)

    @property
    def on_host_network(self) -> bool:
        """Whether any of the pods uses its node's network."""
        return any((role.template.get("spec") or {}).get("hostNetwork") for role in self.roles)

    @property
    def identity(self) -> str:
        """What tells this incarnation from all others, of this job and of any."""
        return f"{self.metadata.uid}-{self.incarnation}"

    @property
    def gang(self) -> str:
        """Prefix of all names, and the subdomain in which pods are found."""
        return names.gang_name(self.metadata.name, self.metadata.uid)

    @property
    def size(self) -> int:
        """Processes."""
        return sum(role.processes for role in self.roles)

    @property
    def pods(self) -> int:
        """Pods."""
        return sum(role.replicas for role in self.roles)

    def host_pattern(self, role: str) -> str:
        """Name of a pod with `{index}` and `{incarnation}` to fill in."""
        return f"{self.gang}-{role}-{{index}}-{{incarnation}}"

    def role_plans(self) -> tuple[RolePlan, ...]:
        """The roles as the launch plan has them."""
        return tuple(
            RolePlan(
                name=role.name,
                replicas=role.replicas,
                processes_per_pod=role.processes_per_pod,
                first_rank=role.first_rank,
                host_pattern=self.host_pattern(role.name),
            )
            for role in self.roles
        )

    def mesh(self) -> tuple[Axis, ...]:
        """The axes of the built-in trainer's mesh, outermost first; empty with the user's own image."""
        if self.trainer is None:
            return ()
        return tuple(Axis(name=axis, size=self.trainer["parallelism"][axis]) for axis in MESH_AXES)

    def rendezvous(self) -> Rendezvous:
        """Where this incarnation meets, and no other can enter.

        The host is `<pod>.<gang>`. The resolver completes it with the pod's own namespace at the first try, whatever
        the cluster's domain is; a longer form would cost failed lookups in every pod, a shorter one has no record.
        """
        first = names.pod_name(self.metadata.name, self.metadata.uid, self.roles[0].name, 0, self.incarnation)
        # Where pods share an address (host network, process nodes) a fixed port would be taken by the next gang, or by
        # what is left of the incarnation before.
        port = _declared_port(self.roles[0]) or (self.ports.start if self.ports else derived(self.identity))
        return Rendezvous(id=self.identity, host=f"{first}.{self.gang}", port=port)


def _declared_port(role: ResolvedRole) -> int | None:
    containers = (role.template.get("spec") or {}).get("containers") or ()
    container: Mapping[str, Any] = containers[role.container] if containers else {}
    return next((int(p["containerPort"]) for p in container.get("ports") or () if p.get("name") == PORT_NAME), None)
