"""What people are told of a change of status: one event for each transition, none for pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from meshwright.lifecycle.conditions import find
from meshwright_api import names
from meshwright_api.status import Incident, Phase, TrainingJobStatus

_CONDITION_OF: Final = {
    Phase.PENDING: names.SCHEDULED,
    Phase.ADMITTED: names.SCHEDULED,
    Phase.RUNNING: names.RUNNING,
    Phase.RESTARTING: names.RUNNING,
    Phase.SUSPENDED: names.SUSPENDED,
    Phase.SUCCEEDED: names.SUCCEEDED,
    Phase.FAILED: names.FAILED,
}
"""The condition whose message explains a phase."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """An event to be posted on a job."""

    kind: Literal["Normal", "Warning"]
    reason: str
    message: str


def announcements(old: TrainingJobStatus, new: TrainingJobStatus) -> tuple[Announcement, ...]:
    """The events of one status write; warnings only where a person should look."""
    found = []
    if new.phase != old.phase and new.phase is not None:
        condition = find(new, _CONDITION_OF.get(new.phase, ""))
        created = f"Attempt {new.attempt}: {new.pods.desired} pods created."
        warn = new.phase in (Phase.FAILED, Phase.RESTARTING)
        message = condition.message if condition and condition.message else created
        found.append(Announcement("Warning" if warn else "Normal", new.phase.value, message))
    if new.incidents and new.incidents[-1:] != old.incidents[-1:] and new.incidents[-1].judged_at:
        previous = old.incidents[-1] if old.incidents else None
        if previous is None or previous.opened_at != new.incidents[-1].opened_at:
            found.append(_judged(new.incidents[-1]))
    refused = find(new, names.RUNNING)
    if refused and refused.reason == names.REASON_POD_REFUSED and refused != find(old, names.RUNNING):
        found.append(Announcement("Warning", names.REASON_POD_REFUSED, refused.message))
    accepted = find(new, names.ACCEPTED)
    if accepted and accepted.status == "False" and accepted != find(old, names.ACCEPTED):
        found.append(Announcement("Warning", names.REASON_INVALID_SPEC, accepted.message))
    return tuple(found)


def _judged(incident: Incident) -> Announcement:
    culprit = incident.culprit
    who = culprit.pod or f"{culprit.role}/{culprit.index}"
    code = f", exit code {culprit.exit_code}" if culprit.exit_code is not None else ""
    charge = "charged" if incident.charged else "not charged"
    message = f"Attempt {incident.attempt}: {incident.cause.value} at {who} ({culprit.reason}{code}); {charge}."
    return Announcement("Warning", "IncidentJudged", message)
