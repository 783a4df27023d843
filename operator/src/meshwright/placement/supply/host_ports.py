"""Ports of the node that pods take: each is there once on every node, and is counted so.

As kube-scheduler counts them (its plugin NodePorts), but for ports of one address of the node (`hostIP`): whether two
of those collide depends on both, and kube-scheduler has the last word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from meshwright.placement.supply.resources import NOTHING, ONE_EACH, Resources

_EVERY_ADDRESS: Final = ("", "0.0.0.0", "::")


def host_ports(pod: Mapping[str, Any]) -> Resources:
    """What a pod, or a pod template, asks of its node so that nobody else has its ports there."""
    spec = pod.get("spec") or {}
    found = {f"{ONE_EACH}pods on host port {port}" for port in _ports(spec)}
    return Resources.of(dict.fromkeys(found, 1)) if found else NOTHING


def _ports(spec: Mapping[str, Any]) -> Iterator[str]:
    on_the_host = spec.get("hostNetwork") is True
    for container in (*(spec.get("containers") or ()), *_sidecars(spec)):
        for port in container.get("ports") or ():
            # The API server fills this in for pods on the host network; a template has not been there yet.
            number = port.get("hostPort") or (port.get("containerPort") if on_the_host else None)
            if isinstance(number, int) and (port.get("hostIP") or "") in _EVERY_ADDRESS:
                yield f"{number}/{port.get('protocol') or 'TCP'}"


def _sidecars(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Init containers that run on; the ports of the others are nobody's when the pod runs, and are not counted."""
    return (c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always")
