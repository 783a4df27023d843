"""Builders of jobs, as the API server has them, and of their frozen plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.placement.model import Member, Placed
from meshwright.rendering.gang import FrozenPlan, RenderSettings, freeze, request
from meshwright_api.job import TrainingJob, parse_job

UID = "5a3c2f0e-9d1b-4f6a-8c7d-0e1f2a3b4c5d"
PLAIN = ("python", "train.py")
TORCHRUN = ("torchrun", "train.py")


def a_container(*command: str, name: str = "trainer", gpus: int = 0, **more: Any) -> dict[str, Any]:
    container: dict[str, Any] = {"name": name, "image": "pytorch/pytorch:latest", "command": list(command or PLAIN)}
    if gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": gpus}}
    return container | more


def a_role(
    replicas: int = 2,
    *command: str,
    name: str = "worker",
    gpus_per_pod: int | None = None,
    processes_per_pod: int | None = None,
    container: Mapping[str, Any] | None = None,
    metadata: Mapping[str, Any] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A role whose one container runs `command`; `container` adds to it, `spec` to the pod."""
    role: dict[str, Any] = {"name": name, "replicas": replicas}
    if gpus_per_pod is not None:
        role["gpusPerPod"] = gpus_per_pod
    if processes_per_pod is not None:
        role["processesPerPod"] = processes_per_pod
    template: dict[str, Any] = {"spec": {"containers": [a_container(*command, **dict(container or {}))], **spec}}
    if metadata:
        template["metadata"] = dict(metadata)
    return role | {"template": template}


def a_job(
    *roles: Mapping[str, Any], name: str = "demo", namespace: str = "team", uid: str = UID, **spec: Any
) -> TrainingJob:
    """A job read from its object, with the checks that every job goes through."""
    return parse_job(
        {
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"roles": list(roles or [a_role()]), **spec},
        }
    )


def a_trained_job(
    role: Mapping[str, Any] | None = None, *, namespace: str = "team", volumes: Any = (), **trainer: Any
) -> TrainingJob:
    """A job with the built-in trainer in one pod, or in the given role; `trainer` adds to its section."""
    section = {"model": {"name": "gpt3", "preset": "tiny"}, "data": {"source": "/data"}, "steps": 10, **trainer}
    return a_job(dict(role or {"name": "worker"}), namespace=namespace, trainer=section, volumes=list(volumes))


def a_place(job: TrainingJob) -> Placed:
    """A node of its own for every pod."""
    members = [member for role in request(job).roles for member in role.members()]
    nodes: dict[Member, str] = {member: f"node-{i}" for i, member in enumerate(members)}
    return Placed(nodes)


def frozen(
    job: TrainingJob,
    *,
    attempt: int = 1,
    incarnation: int = 1,
    pinned: bool = True,
    settings: RenderSettings | None = None,
) -> FrozenPlan:
    return freeze(
        job,
        attempt=attempt,
        incarnation=incarnation,
        request=request(job),
        placed=a_place(job) if pinned else None,
        settings=settings or RenderSettings(),
    )


def env_of(manifest: Mapping[str, Any], container: int = 0) -> dict[str, str]:
    """Variables of a container; the last of a name wins, as in Kubernetes."""
    return {v["name"]: v.get("value", "") for v in manifest["spec"]["containers"][container]["env"]}
