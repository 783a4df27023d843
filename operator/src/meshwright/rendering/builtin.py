"""The built-in trainer's part of a pod: image, command, shared memory, plug-in code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from meshwright.rendering.fabric.laying import SHARED_MEMORY
from meshwright.rendering.perpod import PerPod
from meshwright.rendering.settings import RenderSettings
from meshwright_api.reserved import CODE_MOUNT

COMMAND: Final = ("python", "-m", "meshwright_trainer", "pod")
METRICS_PORT: Final = 9464
"""Where each pod's first process serves Prometheus; the container port is called `metrics`."""
_SHARED_MEMORY_VOLUME: Final = "meshwright-shm"
_CODE_VOLUME: Final = "meshwright-code"


@dataclass(frozen=True, slots=True)
class Additions:
    """What a container or a pod gets beside what it has."""

    mounts: list[dict[str, Any]] = field(default_factory=list)
    volumes: list[dict[str, Any]] = field(default_factory=list)

    def add(self, name: str, path: str, source: Mapping[str, Any], *, read_only: bool = False) -> None:
        """Adds a volume and its mount."""
        self.volumes.append({"name": name, **source})
        self.mounts.append({"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})})


def program(container: Mapping[str, Any], settings: RenderSettings, *, host_network: bool) -> dict[str, Any]:
    """The container with its command and metrics, and with the trainer's image unless it names one.

    Args:
        container: as the template has it.
        settings: the administrator's part.
        host_network: whether other pods may have the same address, so that each needs a port of its own.
    """
    ports = container.get("ports") or []
    own = next((port["containerPort"] for port in ports if port.get("name") == "metrics"), None)
    value: str | PerPod = str(METRICS_PORT if own is None else own)
    if own is None:
        number: int | PerPod = PerPod("{metrics}", number=True) if host_network else METRICS_PORT
        ports = [*ports, {"name": "metrics", "containerPort": number}]
        value = PerPod("{metrics}") if host_network else value
    served = [
        {"name": "MESHWRIGHT_METRICS_PORT", "value": value},
        # Where pods share a machine's network each has an address of its own at most, never a port.
        {"name": "MESHWRIGHT_METRICS_ADDRESS", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
    ]
    return {
        **container,
        "image": container.get("image") or settings.trainer_image,
        "command": list(COMMAND),
        "ports": ports,
        "env": [*served, *container.get("env", ())],
    }


def additions(trainer: Mapping[str, Any], mounted: frozenset[str]) -> Additions:
    """The volumes that the trainer needs.

    Args:
        trainer: the job's section.
        mounted: paths at which the container has volumes already; they stay.
    """
    found = Additions()
    if SHARED_MEMORY not in mounted:
        # A container runtime gives 64 MiB, which a few loader processes or NCCL exceed.
        found.add(_SHARED_MEMORY_VOLUME, SHARED_MEMORY, {"emptyDir": {"medium": "Memory"}})
    config_map = (trainer.get("code") or {}).get("configMap")
    if config_map:
        found.add(_CODE_VOLUME, CODE_MOUNT, {"configMap": {"name": config_map}}, read_only=True)
    return found
