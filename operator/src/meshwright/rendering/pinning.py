"""Narrows where a pod may go, through kube-scheduler, which stays in charge of taints and races."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pinned(affinity: Mapping[str, Any] | None, node: object) -> dict[str, Any]:
    """The affinity, narrowed to one node."""
    return narrowed(affinity, "matchFields", [{"key": "metadata.name", "operator": "In", "values": [node]}])


def narrowed(
    affinity: Mapping[str, Any] | None,
    kind: Literal["matchFields", "matchExpressions"],
    conditions: Iterable[Mapping[str, Any]],
) -> dict[str, Any]:
    """The affinity, narrowed to nodes that meet further conditions on their fields or labels.

    Terms are alternatives, so conditions are added to each of them: a term of their own would widen what the user
    allowed.
    A term without conditions matches no node and stays as it is, since with a condition it would begin to match.
    """
    affinity = dict(affinity or {})
    to_nodes = dict(affinity.get("nodeAffinity") or {})
    required = to_nodes.get(REQUIRED)
    more = list(conditions)
    terms = [{}] if required is None else required.get("nodeSelectorTerms") or []
    to_nodes[REQUIRED] = {
        "nodeSelectorTerms": [
            {**term, kind: [*(term.get(kind) or []), *more]}
            if required is None or term.get("matchExpressions") or term.get("matchFields")
            else term
            for term in terms
        ]
    }
    return {**affinity, "nodeAffinity": to_nodes}
