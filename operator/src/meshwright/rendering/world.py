"""Where every process of a gang stands, and where they meet.

Every role counts: ranks are numbered over the roles in the order of the spec, pod after pod, so a `master` that stands
before its `worker`s has rank 0, as scripts that come from a PyTorchJob expect. WORLD_SIZE counts processes, not pods.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshwright_api import names
from meshwright_api.job import Metadata, TrainingJob
from meshwright_api.launch_plan import Axis, Rendezvous, RolePlan
from meshwright_api.resolve import ResolvedRole, resolve
from meshwright_api.spec import Agent
from meshwright_api.trainer_defaults import MESH_AXES

PORT_NAME: Final = "rendezvous"
"""A container port of that name in the first role's trained container is used as the rendezvous port."""
_PORTS: Final = range(20_000, 30_000)
"""Below the ports that Linux gives to clients and Kubernetes to NodePorts."""


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

    @classmethod
    def of(cls, job: TrainingJob, incarnation: int) -> World:
        """Works out the roles of a job."""
        resolved = resolve(job.spec)
        roles = tuple(role for role in resolved.roles if role.replicas > 0)
        return cls(job.metadata, incarnation, roles, resolved.agent is Agent.INJECT, resolved.trainer)

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
        identity = f"{self.metadata.uid}-{self.incarnation}"
        first = names.pod_name(self.metadata.name, self.metadata.uid, self.roles[0].name, 0, self.incarnation)
        port = _declared_port(self.roles[0]) or _derived_port(identity)
        return Rendezvous(id=identity, host=f"{first}.{self.gang}", port=port)


def _derived_port(identity: str) -> int:
    # Where pods share an address (host network, process nodes) a fixed port would be taken by the next gang, or by what
    # is left of the incarnation before.
    digest = hashlib.sha256(identity.encode()).digest()
    return _PORTS[int.from_bytes(digest[:4], "big") % len(_PORTS)]


def _declared_port(role: ResolvedRole) -> int | None:
    containers = (role.template.get("spec") or {}).get("containers") or ()
    container: Mapping[str, Any] = containers[role.container] if containers else {}
    return next((int(p["containerPort"]) for p in container.get("ports") or () if p.get("name") == PORT_NAME), None)
