"""Nodes that a job has had trouble with lately."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from meshwright_api.status import Cause, TrainingJobStatus

AVOID_SECONDS: Final = 3600
"""How long a node is avoided after it refused or lost a pod of the job, or did not get it to run."""

_NODE_CAUSES: Final = frozenset({Cause.NODE_LOST, Cause.KUBELET_REFUSED, Cause.BIND_DEADLINE, Cause.STARTUP_DEADLINE})


def nodes_to_avoid(status: TrainingJobStatus, now: datetime) -> frozenset[str]:
    """Nodes that incidents of the last hour were traced to; used again only if nothing else will do."""
    since = now - timedelta(seconds=AVOID_SECONDS)
    return frozenset(
        incident.culprit.node
        for incident in status.incidents
        if incident.cause in _NODE_CAUSES and incident.judged_at > since and incident.culprit.node
    )
