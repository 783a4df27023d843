"""What a spec comes to once every default is worked out. Done once per attempt; the launch plan keeps the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright_api.reading import read
from meshwright_api.spec import Agent, Role, TrainingJobSpec
from meshwright_api.template import PodTemplate


@dataclass(frozen=True, slots=True)
class ResolvedRole:
    """Pods of one kind, with nothing left open."""

    name: str
    replicas: int
    gpus_per_pod: int
    processes_per_pod: int
    first_rank: int
    """Rank of process 0 of pod 0."""
    container: int
    """Position in the template's containers of the one that trains and is judged."""
    template: Mapping[str, Any]

    @property
    def processes(self) -> int:
        """Training processes in all pods of the role."""
        return self.replicas * self.processes_per_pod


@dataclass(frozen=True, slots=True)
class Resolved:
    """A spec with nothing left open."""

    roles: tuple[ResolvedRole, ...]
    """Roles in rank order, those with 0 replicas too."""
    agent: Agent

    @property
    def pods(self) -> int:
        """Pods in the gang."""
        return sum(role.replicas for role in self.roles)

    @property
    def world_size(self) -> int:
        """Training processes in the gang."""
        return sum(role.processes for role in self.roles)


def resolve(spec: TrainingJobSpec) -> Resolved:
    """Works out every default of a spec that `problems` finds nothing wrong with."""
    agent = spec.agent or Agent.NONE
    roles: list[ResolvedRole] = []
    first_rank = 0
    for role in spec.roles:
        resolved = _role(role, agent, _replicas(spec, role), first_rank)
        roles.append(resolved)
        first_rank += resolved.processes
    return Resolved(tuple(roles), agent)


def _replicas(spec: TrainingJobSpec, role: Role) -> int:
    elastic = spec.elastic
    if elastic is not None and elastic.role == role.name and elastic.replicas is not None:
        return elastic.replicas
    return role.replicas


def _role(role: Role, agent: Agent, replicas: int, first_rank: int) -> ResolvedRole:
    pod = read(PodTemplate, role.template).spec
    position = pod.trained or 0
    container = pod.containers[position] if pod.containers else None
    gpus = role.gpus_per_pod if role.gpus_per_pod is not None else (container.gpus if container else None) or 0
    spawns = agent is Agent.INJECT or (container is not None and container.uses_torchrun)
    processes = role.processes_per_pod or (max(gpus, 1) if spawns else 1)
    return ResolvedRole(role.name, replicas, gpus, processes, first_rank, position, role.template)
