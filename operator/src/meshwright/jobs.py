"""The newest known state of every TrainingJob, and what this process remembers of it between two passes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from meshwright.lifecycle.model import Job, Pod
from meshwright.rendering.gang import FrozenPlan
from meshwright_api.job import Metadata, TrainingJob, parse_metadata
from meshwright_api.status import TrainingJobStatus

Reading = tuple[Job, TrainingJob | None, TrainingJobStatus]
"""A job as a decision reads it, as rendering does if its spec can be run, and its status."""


@dataclass
class Memory:
    """What a process knows of a job beyond its status. Losing it costs requests, never correctness."""

    frozen: FrozenPlan | None = None
    """The plan in hand."""
    stored: str = ""
    """Hash of the plan that the API server was seen to hold."""
    created: dict[str, tuple[Pod, datetime]] = field(default_factory=dict)
    """By UID, pods that were created and that the cache does not show yet, and when."""
    deleted: dict[str, datetime] = field(default_factory=dict)
    """UIDs whose deletion was asked for and that the cache does not show as stopping yet, and when."""
    undisturbed_since: datetime | None = None
    """Since when no pod of an older incarnation has been stopping."""
    progress_at: datetime | None = None
    """When a write that only refreshed something was last made."""
    refusal: str = ""
    deciding_seconds: float = 0.0
    """What the last decision took of the processor: it grows with the gang."""
    failures: int = 0
    """Passes in a row that ended in an error."""


@dataclass
class KnownJob:
    """A job as it was last read."""

    raw: Mapping[str, Any]
    metadata: Metadata
    memory: Memory = field(default_factory=Memory)
    reading: Reading | None = None
    """What `raw` says, once somebody has read it: a job is looked at for every change of one of its pods."""

    @property
    def version(self) -> int:
        """Its resource version as a number: the order in which states followed each other."""
        return int(self.metadata.resource_version or 0)


class Jobs:
    """Every known job by UID. A state that is older than the known one is ignored."""

    def __init__(self) -> None:
        self._jobs: dict[str, KnownJob] = {}

    def put(self, raw: Mapping[str, Any]) -> KnownJob | None:
        """Notes a state of a job; returns it if it is news."""
        metadata = parse_metadata(raw)
        if not metadata.uid:
            return None
        known = self._jobs.get(metadata.uid)
        if known is None:
            known = self._jobs[metadata.uid] = KnownJob(raw, metadata)
            return known
        if int(metadata.resource_version or 0) <= known.version:
            return None
        known.raw, known.metadata, known.reading = raw, metadata, None
        return known

    def get(self, uid: str) -> KnownJob | None:
        """The job with that UID, if it is known."""
        return self._jobs.get(uid)

    def drop(self, uid: str) -> None:
        """Forgets a job that is gone."""
        self._jobs.pop(uid, None)

    def uids(self) -> tuple[str, ...]:
        """Every known UID."""
        return tuple(self._jobs)

    def count(self) -> Counter[tuple[str, str]]:
        """How many jobs there are, by namespace and phase; may be asked from another thread."""
        found: Counter[tuple[str, str]] = Counter()
        for known in tuple(self._jobs.values()):
            status = known.raw.get("status")
            phase = status.get("phase") if isinstance(status, Mapping) else None
            found[known.metadata.namespace, str(phase or "None")] += 1
        return found

    def forget_memories(self) -> None:
        """Leadership was lost: what this process remembers may have been overtaken."""
        for job in self._jobs.values():
            job.memory = Memory()
