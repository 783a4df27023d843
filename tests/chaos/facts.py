"""What is known of a run from outside: values that verdicts are passed on."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]

LABEL_JOB_UID = "meshwright.dev/job-uid"
LABEL_ROLE = "meshwright.dev/role"
LABEL_INDEX = "meshwright.dev/index"
LABEL_INCARNATION = "meshwright.dev/incarnation"
ANNOTATION_PLAN = "meshwright.dev/plan-sha256"
"""Written out, not imported: a judge who shares the words of the judged would not notice a changed one."""

TERMINAL = frozenset({"Succeeded", "Failed"})

REFUND_SECONDS = 120.0
"""How long after a charged incident the loss of a node still explains it."""


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One finished call in the API server's audit log.

    Attributes:
        at: When the call was received, as the log has it; texts of one form, so that they sort.
        done_at: When it was answered.
    """

    at: str
    done_at: str
    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    request: Json = field(default_factory=dict)
    response: Json = field(default_factory=dict)

    @classmethod
    def parse(cls, line: bytes) -> AuditEvent | None:
        """Reads a line of the log; None for a dry run and for what is about no resource."""
        event = json.loads(line)
        what = event.get("objectRef") or {}
        if not what or "dryRun=" in event.get("requestURI", ""):
            return None
        return cls(
            at=event["requestReceivedTimestamp"],
            done_at=event["stageTimestamp"],
            user=event["user"]["username"],
            verb=event["verb"],
            resource=what.get("resource", ""),
            subresource=what.get("subresource", ""),
            namespace=what.get("namespace", ""),
            name=what.get("name", ""),
            code=(event.get("responseStatus") or {}).get("code", 0),
            request=event.get("requestObject") or {},
            response=event.get("responseObject") or {},
        )

    @property
    def succeeded(self) -> bool:
        """Whether the server did it."""
        return 200 <= self.code < 300

    @property
    def creates_pod(self) -> bool:
        """Whether a pod was made by this call."""
        return self.verb == "create" and self.resource == "pods" and not self.subresource and self.succeeded

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of the object in the answer."""
        return (self.response.get("metadata") or {}).get("labels") or {}

    @property
    def writes_status(self) -> bool:
        """Whether a TrainingJob's status was changed by this call."""
        return self.resource == "trainingjobs" and self.subresource == "status" and self.succeeded


@dataclass(frozen=True, slots=True)
class JobState:
    """A TrainingJob as the judge's own watch saw it at one version."""

    uid: str
    name: str
    version: int
    status: Mapping[str, Any]
    seen_at: float = 0.0

    @property
    def phase(self) -> str:
        """Its phase; empty before the first."""
        return str(self.status.get("phase") or "")

    def number(self, key: str) -> int:
        """A counter of the status."""
        return int(self.status.get(key) or 0)


@dataclass(frozen=True, slots=True)
class Due:
    """An incident that was caused on purpose, and what it must cost."""

    what: str
    charged: bool
    at: float = 0.0
    """When it was caused, by this process's clock."""


@dataclass
class Ledger:
    """What was done to one job.

    Attributes:
        entries: Incidents that are due, in order; each is caused only after the one before was overcome.
        detours: Suspensions, each with a resume.
        fails_by_rule: Whether a rule of the failure policy ends the job at the last entry.
        slack: Further free incidents that may have been opened, because reads were falsified or a node flapped.
    """

    max_restarts: int = 10
    max_disruptions: int = 100
    entries: list[Due] = field(default_factory=list)
    detours: int = 0
    fails_by_rule: bool = False
    slack: int = 0
    succeeds: bool = False

    @property
    def charged(self) -> int:
        """Charged incidents that are due."""
        return sum(due.charged for due in self.entries)

    @property
    def free(self) -> int:
        """Free incidents that are due."""
        return len(self.entries) - self.charged

    @property
    def fails(self) -> bool:
        """Whether the job must have failed."""
        return self.fails_by_rule or self.charged > self.max_restarts or self.free > self.max_disruptions

    def add(self, what: str, *, charged: bool) -> None:
        """One incident is caused."""
        self.entries.append(Due(what, charged, time.monotonic()))

    def node_lost(self, what: str) -> None:
        """A node of the gang is lost, which also takes back every charge of the two minutes before."""
        since = time.monotonic() - REFUND_SECONDS
        self.entries = [
            replace(due, what=f"{due.what} (refunded)", charged=False) if due.charged and due.at > since else due
            for due in self.entries
        ]
        self.add(what, charged=False)


@dataclass(frozen=True)
class Facts:
    """Everything that one run is judged by.

    Attributes:
        operator: User name of the operator's service account.
        audit: The namespace's part of the audit log, oldest first.
        states: Every state of every job there, in order.
        ledgers: By UID of job.
        leftovers: What was found after everything was deleted.
        problems: Waits that were not answered in time.
        deserted: Ends of the operator's process that nobody had asked for.
        undisturbed: Whether nothing interfered with the operator, so that its writes may be counted.
    """

    operator: str
    audit: tuple[AuditEvent, ...] = ()
    states: tuple[JobState, ...] = ()
    ledgers: Mapping[str, Ledger] = field(default_factory=dict)
    leftovers: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    deserted: int = 0
    undisturbed: bool = False
