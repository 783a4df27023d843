"""What pods count against a namespace's ResourceQuotas."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshwright.placement.supply.requests import pod_requests

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class Claim:
    """What one pod counts against a quota."""

    amounts: tuple[tuple[str, int], ...] = ()
    """By the quota's name of the resource, CPU in thousandths."""
    priority_class: str = ""
    deadline: bool = False
    """Whether the pod has an activeDeadlineSeconds."""

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Claim:
        """Of a pod, as it will be sent to the API server.

        Raises:
            InvalidQuantity: a request or limit is no quantity.
        """
        spec = manifest.get("spec") or {}
        amounts: dict[str, int] = {}
        for name, value in pod_requests(manifest).items():
            if name == "pods":
                amounts |= {"pods": value, "count/pods": value}
                continue
            amounts[f"requests.{name}"] = value
            if name in _COMPUTE:
                amounts[name] = value
        for name, value in pod_requests({"spec": _limits_only(spec)}).items():
            if name in _COMPUTE:
                amounts[f"limits.{name}"] = value
        return cls(
            tuple(sorted((name, value) for name, value in amounts.items() if value)),
            spec.get("priorityClassName") or "",
            spec.get("activeDeadlineSeconds") is not None,
        )


NO_CLAIM: Final = Claim()


def _limits_only(spec: Mapping[str, Any]) -> dict[str, Any]:
    """The spec with its limits in place of its requests."""

    def limited(containers: Iterable[Mapping[str, Any]] | None) -> list[dict[str, Any]]:
        return [
            {**c, "resources": {"requests": (c.get("resources") or {}).get("limits") or {}}} for c in containers or ()
        ]

    return {"containers": limited(spec.get("containers")), "initContainers": limited(spec.get("initContainers"))}
