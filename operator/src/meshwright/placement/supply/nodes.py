"""What placement needs to know of a node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from meshwright.placement.supply.resources import NOTHING, Resources


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's refusal of pods that do not tolerate it."""

    key: str
    value: str
    effect: str

    @property
    def keeps_out(self) -> bool:
        """Whether it keeps new pods out, and does not only ask for that."""
        return self.effect in ("NoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class NodeCapacity:
    """A node: what it offers, and whom it takes."""

    name: str
    allocatable: Resources = NOTHING
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    """Cordoned."""
    ready: bool = True
    """The kubelet reports, says it is ready, and the node is not being removed."""

    @classmethod
    def parse(cls, node: Mapping[str, Any]) -> NodeCapacity:
        """Reads a Node object.

        Raises:
            InvalidQuantity: an allocatable amount is no quantity.
        """
        metadata, spec, status = (node.get(part) or {} for part in ("metadata", "spec", "status"))
        ready = any(c.get("type") == "Ready" and c.get("status") == "True" for c in status.get("conditions") or ())
        return cls(
            name=metadata["name"],
            allocatable=Resources.parse(status.get("allocatable") or {}),
            labels=metadata.get("labels") or {},
            taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in spec.get("taints") or ()),
            unschedulable=bool(spec.get("unschedulable")),
            ready=ready and "deletionTimestamp" not in metadata,
        )
