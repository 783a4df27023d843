"""Puts what changed between two looks at the job into words."""

from __future__ import annotations

from collections.abc import Iterator

from demo.script_log import Checkpoint, Line, Started
from meshwright_api import names
from meshwright_api.status import Incident, Phase, TrainingJobStatus


def changes(before: TrainingJobStatus, now: TrainingJobStatus) -> Iterator[str]:
    """A line for a new phase, for why the job waits, for an incident that was opened or judged."""
    if now.phase is not before.phase and now.phase:
        ready = f", {now.ready} pods run" if now.phase in (Phase.STARTING, Phase.RUNNING) and now.ready else ""
        yield f"phase {now.phase} (attempt {max(now.attempt, 1)}{ready})"
    waiting = why_waiting(now)
    if waiting and waiting != why_waiting(before):
        yield f"waiting: {waiting}"
    if now.incident and not before.incident:
        opened = now.incident
        yield f"incident: attempt {opened.attempt} is over, the first sign is {opened.trigger}; the gang is stopped"
    for incident in now.incidents[len(before.incidents) :]:
        yield from judged(incident)


def why_waiting(status: TrainingJobStatus) -> str:
    """What the job waits for; empty if it does not."""
    blocked = (c for c in status.conditions if c.type in (names.ACCEPTED, names.SCHEDULED) and c.status == "False")
    return next((condition.message for condition in blocked), "")


def judged(incident: Incident) -> Iterator[str]:
    """An incident in the words of the status."""
    culprit = incident.culprit
    cost = "counts against maxRestarts" if incident.charged else "costs nothing"
    yield f"incident judged: {incident.cause}, {incident.action}; it {cost}"
    yield f"  culprit {culprit.pod} on {culprit.node}, exit code {culprit.exit_code}, uid {culprit.pod_uid}"


def said(line: Line) -> str:
    """A line of the script that is worth one here; empty for the others."""
    if isinstance(line, Checkpoint):
        return f"checkpoint at step {line.step}"
    if isinstance(line, Started):
        source = f"the checkpoint of step {line.resumed_from_step}" if line.resumed_from_step else "nothing"
        return f"the script has started, from {source}"
    return ""
