"""What a spec comes to once every default is worked out. Done once per attempt; the launch plan keeps the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshwright_api import reserved
from meshwright_api.reading import read, without_nulls
from meshwright_api.spec import Agent, Role, TrainingJobSpec
from meshwright_api.template import PodTemplate
from meshwright_api.trainer import TrainerSpec
from meshwright_api.trainer_defaults import filled, mesh_size

TRAINER_GRACE_SECONDS: Final = 120
"""How long a pod of the built-in trainer may take to stop: a checkpoint of a large model must fit in."""


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
    trainer: Mapping[str, Any] | None = None
    """Section `trainer` with every default in it; None with the user's own image."""

    @property
    def pods(self) -> int:
        """Pods in the gang."""
        return sum(role.replicas for role in self.roles)

    @property
    def world_size(self) -> int:
        """Training processes in the gang."""
        return sum(role.processes for role in self.roles)


def resolve(spec: TrainingJobSpec) -> Resolved:
    """Works out every default of a spec whose form is right."""
    trainer = None if spec.trainer is None else without_nulls(spec.trainer, TrainerSpec)
    agent = spec.agent or (Agent.NONE if trainer is None else Agent.INJECT)
    roles: list[ResolvedRole] = []
    first_rank = 0
    for role in _roles(spec):
        resolved = _role(spec, role, agent, trainer, first_rank)
        roles.append(resolved)
        first_rank += resolved.processes
    return Resolved(tuple(roles), agent, None if trainer is None else filled(trainer, first_rank))


def _roles(spec: TrainingJobSpec) -> tuple[Role, ...]:
    """The roles; the built-in trainer knows what its pods are made of, so it needs none to be given."""
    return spec.roles or ((Role(name="worker"),) if spec.trainer is not None else ())


def _role(
    spec: TrainingJobSpec, role: Role, agent: Agent, trainer: Mapping[str, Any] | None, first_rank: int
) -> ResolvedRole:
    template = role.template if trainer is None else _trainer_template(role.template)
    pod = read(PodTemplate, template).spec
    position = pod.trained or 0
    container = pod.containers[position] if pod.containers else None
    gpus = role.gpus_per_pod if role.gpus_per_pod is not None else (container.gpus if container else None) or 0
    wanted = role.replicas
    if spec.elastic is not None and spec.elastic.role == role.name and spec.elastic.replicas is not None:
        wanted = spec.elastic.replicas
    ranks = None if trainer is None else mesh_size(trainer)
    spawns = trainer is not None or agent is Agent.INJECT or (container is not None and container.uses_torchrun)
    processes = role.processes_per_pod or _processes(gpus if spawns else 0, wanted, ranks)
    replicas = wanted if wanted is not None else _pods_for(ranks, processes)
    return ResolvedRole(role.name, replicas, gpus, processes, first_rank, position, template)


def _processes(gpus: int, replicas: int | None, ranks: int | None) -> int:
    """Processes in each pod: one for each GPU; without GPUs as many as the mesh leaves for each pod."""
    if gpus or not replicas or not ranks or ranks % replicas:
        return max(gpus, 1)
    return ranks // replicas


def _pods_for(ranks: int | None, processes: int) -> int:
    """Pods that hold the mesh. One where there is no mesh, or where it would not come out even, which is refused."""
    return ranks // processes if ranks and ranks % processes == 0 else 1


def _trainer_template(template: Mapping[str, Any]) -> Mapping[str, Any]:
    """The template with the built-in trainer's container in it, and time to write a checkpoint."""
    pod = dict(template.get("spec") or {})
    containers = list(pod.get("containers") or ())
    if not any(container.get("name") == reserved.TRAINER for container in containers):
        containers.append({"name": reserved.TRAINER})
    pod["containers"] = containers
    if pod.get("terminationGracePeriodSeconds") is None:
        pod["terminationGracePeriodSeconds"] = TRAINER_GRACE_SECONDS
    return {**template, "spec": pod}
