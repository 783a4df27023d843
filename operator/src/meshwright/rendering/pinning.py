"""Binds a pod to its node, through kube-scheduler, which stays in charge of taints and races."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def pinned(affinity: Mapping[str, Any] | None, node: object) -> dict[str, Any]:
    """The affinity, narrowed to one node.

    Terms are alternatives, so the node is added to each of them: a term of its own would widen what the user allowed.
    A term without conditions matches no node and stays as it is, since with a condition it would begin to match.
    """
    affinity = dict(affinity or {})
    to_nodes = dict(affinity.get("nodeAffinity") or {})
    required = to_nodes.get(REQUIRED)
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    terms = [{}] if required is None else required.get("nodeSelectorTerms") or []
    to_nodes[REQUIRED] = {
        "nodeSelectorTerms": [
            {**term, "matchFields": [*(term.get("matchFields") or []), field]}
            if required is None or term.get("matchExpressions") or term.get("matchFields")
            else term
            for term in terms
        ]
    }
    return {**affinity, "nodeAffinity": to_nodes}
