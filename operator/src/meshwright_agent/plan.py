"""The launch plan and the pod's place in it, as far as the agent needs them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright_agent.errors import Misplaced

VERSION = 1
"""The newest version of plans that this agent reads."""


@dataclass(frozen=True)
class Role:
    """The pods of one role."""

    name: str
    replicas: int
    processes_per_pod: int
    first_rank: int
    """Rank of process 0 of pod 0."""
    host_pattern: str
    """Name of a pod, with `{index}` and `{incarnation}` to fill in."""


@dataclass(frozen=True)
class Heartbeat:
    """Where and how often to report."""

    url: str
    """Endpoint of the operator."""
    interval_seconds: float
    aggregate_port: int
    """UDP port on which rank 0's agent hears the others."""


@dataclass(frozen=True)
class Plan:
    """One attempt of a job."""

    job_uid: str
    attempt: int
    roles: tuple[Role, ...]
    """In rank order."""
    world_size: int
    """Training processes in all."""
    rendezvous_id: str
    rendezvous_host: str
    """Host of rank 0."""
    rendezvous_port: int
    heartbeat: Heartbeat | None

    @classmethod
    def load(cls, path: str) -> Plan:
        """Reads the plan that is mounted into the pod.

        Raises:
            Misplaced: there is none, or this agent would misunderstand it.
        """
        try:
            document = json.loads(Path(path).read_bytes())
            needed = document.get("minReader", 1)
            if needed > VERSION:
                raise Misplaced(f"the launch plan needs a reader of version {needed}, this one is {VERSION}")
            return cls._read(document)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise Misplaced(f"the launch plan {path} cannot be read: {type(error).__name__}: {error}") from error

    @classmethod
    def _read(cls, document: Mapping[str, Any]) -> Plan:
        meeting = document["rendezvous"]
        return cls(
            job_uid=str(document["job"]["uid"]),
            attempt=int(document["attempt"]),
            roles=tuple(
                Role(
                    name=str(role["name"]),
                    replicas=int(role["replicas"]),
                    processes_per_pod=int(role["processesPerPod"]),
                    first_rank=int(role["firstRank"]),
                    host_pattern=str(role["hostPattern"]),
                )
                for role in document["roles"]
            ),
            world_size=int(document["worldSize"]),
            rendezvous_id=str(meeting["id"]),
            rendezvous_host=str(meeting["host"]),
            rendezvous_port=int(meeting["port"]),
            heartbeat=_heartbeat(document.get("heartbeat"), int(meeting["port"])),
        )

    @property
    def pods(self) -> int:
        """Pods of all roles."""
        return sum(role.replicas for role in self.roles)

    def has(self, role: str, index: int) -> bool:
        """Whether there is such a pod."""
        return any(r.name == role and 0 <= index < r.replicas for r in self.roles)


@dataclass(frozen=True)
class Place:
    """Where a pod stands in its gang."""

    role: Role
    index: int
    """In its role."""
    incarnation: int
    node_rank: int
    """Number of the pod in rank order over all roles."""

    @classmethod
    def of(cls, plan: Plan, environment: Mapping[str, str]) -> Place:
        """The place that the pod's variables name.

        Raises:
            Misplaced: a variable is missing, or the plan has no such place.
        """
        name = _variable(environment, "MESHWRIGHT_ROLE")
        index = _count(environment, "MESHWRIGHT_INDEX")
        before = 0
        for role in plan.roles:
            if role.name == name:
                if index >= role.replicas:
                    raise Misplaced(f"MESHWRIGHT_INDEX is {index}, but role {name!r} has {role.replicas} pods")
                return cls(role, index, _count(environment, "MESHWRIGHT_INCARNATION"), before + index)
            before += role.replicas
        raise Misplaced(f"MESHWRIGHT_ROLE is {name!r}, which the launch plan does not have")

    @property
    def first_rank(self) -> int:
        """Rank of the pod's first process."""
        return self.role.first_rank + self.index * self.role.processes_per_pod

    @property
    def pod(self) -> str:
        """The pod's name."""
        return self.role.host_pattern.format(index=self.index, incarnation=self.incarnation)

    @property
    def leads(self) -> bool:
        """Whether rank 0 runs here."""
        return self.node_rank == 0


def _heartbeat(document: Mapping[str, Any] | None, meeting_port: int) -> Heartbeat | None:
    if not document or not document.get("url"):
        return None
    interval = float(document["intervalSeconds"])
    if not interval > 0:
        raise ValueError(f"heartbeat.intervalSeconds is {interval}")
    # Beside the rendezvous port, which no other gang on the same address has.
    return Heartbeat(str(document["url"]), interval, int(document.get("aggregatePort") or meeting_port + 1))


def _variable(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name)
    if not value:
        raise Misplaced(f"the variable {name} is not set; the agent runs in pods that Meshwright makes")
    return value


def _count(environment: Mapping[str, str], name: str) -> int:
    value = _variable(environment, name)
    if not (value.isascii() and value.isdecimal()):
        raise Misplaced(f"the variable {name} must be a whole number, not {value!r}")
    return int(value)
