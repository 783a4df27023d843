"""What a job's own status says, for who may not see the cluster."""

from __future__ import annotations

import json

from meshwright.picture.document import VERSION
from meshwright.picture.text import amount, columns
from meshwright_api import names
from meshwright_api.job import TrainingJob


def status_text(job: TrainingJob, lacks: str) -> str:
    """Where the job is in its life and why, in the operator's words.

    Args:
        job: the job.
        lacks: the rights that would show more.
    """
    status, metadata = job.status, job.metadata
    phase = str(status.phase) if status.phase else "not seen by an operator yet"
    lines = [f"{metadata.namespace}/{metadata.name}: {phase}" + (f", {status.ready} pods run" if status.ready else "")]
    for condition in status.conditions:
        if condition.type in (names.ACCEPTED, names.SCHEDULED) and condition.message:
            lines.append(f"{condition.reason}: {condition.message}")
    if status.placement and status.placement.levels:
        rows = [("LEVEL", "DOMAINS", "CROSSING", "WITH FIRST FIT")]
        rows += [
            (use.level, str(use.domains), amount(use.crossing_bytes), amount(use.first_fit_bytes))
            for use in status.placement.levels
        ]
        lines += ["", *columns(rows, left=(0,)), ""]
    lines.append(f"Counts by domain and the names of nodes need the rights to {lacks}, which you do not have.")
    return "\n".join(lines)


def status_document(job: TrainingJob, lacks: str) -> str:
    """The same as a JSON document."""
    status, metadata = job.status, job.metadata
    scheduled = next((c for c in status.conditions if c.type == names.SCHEDULED), None)
    found = {
        "version": VERSION,
        "topology": None,
        "job": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "phase": str(status.phase or ""),
            "crossing": [
                {
                    "level": use.level,
                    "domains": use.domains,
                    "bytesPerStep": use.crossing_bytes,
                    "firstFitBytesPerStep": use.first_fit_bytes,
                }
                for use in (status.placement.levels if status.placement else ())
            ],
            "operatorMessage": f"{scheduled.reason}: {scheduled.message}" if scheduled and scheduled.message else "",
        },
        "tree": None,
        "lacksRights": lacks,
    }
    return json.dumps(found, indent=2)
