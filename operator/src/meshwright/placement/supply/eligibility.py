"""Whether a pod may run on a node at all, judged as kube-scheduler judges it: labels, taints, cordon, readiness.

What depends on other pods (affinity to them, spread, volumes bound to a zone) is not judged, but for host ports and
pods that want none of their own kind beside them, which count as resources (`host_ports`, `apart`). Of the rest
kube-scheduler has the last word: a pinned pod that it refuses stays unbound, and the gang is placed anew elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from meshwright.placement.supply.nodes import NodeCapacity, Taint

CORDON: Final = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


class Obstacle(StrEnum):
    """Why a node takes no pod of a kind, in words that follow a count: `3 not ready`."""

    NOT_READY = "not ready"
    CORDONED = "cordoned"
    TAINTED = "with a taint that the pods do not tolerate"
    UNWANTED = "outside the pods' node selector or affinity"


@dataclass(frozen=True, slots=True)
class Toleration:
    """What a pod puts up with. An empty key or effect stands for all of them."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Whether the pod puts up with this taint."""
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (self.operator == "Equal" and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on a label (or a field) of a node."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether it is met. A condition that says nothing sensible is met by no node."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        bound = self.values[0] if len(self.values) == 1 else ""
        if value is None or not _INTEGER.fullmatch(value) or not _INTEGER.fullmatch(bound):
            return False
        return int(value) > int(bound) if self.operator == "Gt" else int(value) < int(bound)


@dataclass(frozen=True, slots=True)
class Term:
    """Conditions that must hold together. A term without any is met by no node."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    def holds(self, node: NodeCapacity) -> bool:
        """Whether the node meets every condition of the term."""
        if not self.labels and not self.fields:
            return False
        own = {"metadata.name": node.name}
        return all(r.holds(node.labels) for r in self.labels) and all(
            r.key in own and r.operator in ("In", "NotIn") and r.holds(own) for r in self.fields
        )


@dataclass(frozen=True, slots=True)
class NodeRules:
    """Which nodes a pod may run on; pods of one role share one value."""

    selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    terms: tuple[Term, ...] | None = None
    """Required node affinity: one term must hold. None: there is no such affinity. Empty: no node will do."""

    @classmethod
    def parse(cls, spec: Mapping[str, Any]) -> NodeRules:
        """Reads the spec of a pod."""
        affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        terms = None if required is None else tuple(_term(t) for t in required.get("nodeSelectorTerms") or ())
        return cls(
            selector=tuple(sorted((spec.get("nodeSelector") or {}).items())),
            tolerations=tuple(_toleration(t) for t in spec.get("tolerations") or ()),
            terms=terms,
        )

    def obstacle(self, node: NodeCapacity) -> Obstacle | None:
        """Why the node takes no such pod; None if it does, as far as it has room."""
        if not node.ready:
            return Obstacle.NOT_READY
        if node.unschedulable and not self._tolerates(CORDON):
            return Obstacle.CORDONED
        # Nodes without taints and jobs without a selector are the many: each is asked for every gang.
        if node.taints and (refused := [t for t in node.taints if t.keeps_out and not self._tolerates(t)]):
            # A cordon shows up twice, as a field and as a taint, not always at the same moment; it is one thing.
            return Obstacle.CORDONED if refused == [CORDON] else Obstacle.TAINTED
        if self.selector and any(node.labels.get(key) != value for key, value in self.selector):
            return Obstacle.UNWANTED
        if self.terms is not None and not any(term.holds(node) for term in self.terms):
            return Obstacle.UNWANTED
        return None

    def _tolerates(self, taint: Taint) -> bool:
        return any(toleration.tolerates(taint) for toleration in self.tolerations)


ANYWHERE: Final = NodeRules()
"""Any node that is ready, not cordoned and not tainted."""


def _toleration(toleration: Mapping[str, Any]) -> Toleration:
    return Toleration(
        key=toleration.get("key") or "",
        operator=toleration.get("operator") or "Equal",
        value=toleration.get("value") or "",
        effect=toleration.get("effect") or "",
    )


def _term(term: Mapping[str, Any]) -> Term:
    return Term(requirements(term.get("matchExpressions")), requirements(term.get("matchFields")))


def requirements(expressions: Iterable[Mapping[str, Any]] | None) -> tuple[Requirement, ...]:
    """Reads `matchExpressions`, of a selector of nodes or of pods."""
    return tuple(
        Requirement(e.get("key") or "", e.get("operator") or "", tuple(e.get("values") or ()))
        for e in expressions or ()
    )
