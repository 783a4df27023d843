"""A picture as a JSON document. Its form is described in docs/commands.md; fields are only ever added."""

from __future__ import annotations

import json
from typing import Any

from meshwright.picture.folding import only_job
from meshwright.picture.model import Domain, Picture, Sited, ranges

VERSION = 1


def document(picture: Picture, *, whole: bool) -> str:
    """The text of the document.

    Args:
        picture: what to write.
        whole: the whole tree, not only the domains that the job is in.
    """
    found: dict[str, Any] = {
        "version": VERSION,
        "topology": {
            "name": picture.topology,
            "guessed": picture.guessed,
            "levels": [{"name": v.name, "key": v.key, "bandwidth": v.bandwidth} for v in picture.levels],
            "unlabelledNodes": dict(picture.unlabelled),
        },
        "job": _job(picture.job) if picture.job else None,
        "tree": _domain(picture.root if whole else only_job(picture.root)),
    }
    return json.dumps(found, indent=2)


def _job(job: Sited) -> dict[str, Any]:
    return {
        "name": job.name,
        "namespace": job.namespace,
        "state": str(job.state),
        "reason": job.reason,
        "message": job.message,
        "phase": job.phase,
        "operatorMessage": job.told,
        "mesh": [{"axis": axis, "size": size} for axis, size in job.mesh],
        "pods": job.pods,
        "processes": job.processes,
        "crossing": [
            {"level": c.level, "domains": c.domains, "bytesPerStep": c.bytes, "firstFitBytesPerStep": c.first_fit}
            for c in job.crossing
        ],
        "rooms": [
            {
                "level": r.level,
                "domains": r.domains,
                "podsTogether": r.together,
                "bestDomain": r.best,
                "bestPods": r.best_pods,
                "domainsForAll": r.whole,
            }
            for r in job.rooms
        ],
    }


def _domain(domain: Domain) -> dict[str, Any]:
    gpus = domain.gpus
    return {
        "level": domain.level,
        "name": domain.name,
        "nodes": domain.nodes,
        "gpus": {"total": gpus.total, "free": gpus.free, "busy": gpus.busy, "closed": gpus.closed, "job": gpus.job},
        "note": domain.note,
        "pods": domain.pods,
        "ranks": ranges(domain.ranks),
        "children": [_domain(child) for child in domain.children],
    }
