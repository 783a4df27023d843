"""Opening an incident, stopping the old processes, judging, and taking a charge back."""

from __future__ import annotations

from datetime import timedelta

from meshwright.lifecycle.admitting import plan_is_lost
from meshwright.lifecycle.budget import disruptions_left, restarts_left, within_window
from meshwright.lifecycle.conditions import holds, put
from meshwright.lifecycle.deadlines import overdue, seconds_until
from meshwright.lifecycle.ending import fail
from meshwright.lifecycle.incidents import (
    REFUND_SECONDS,
    Suspect,
    Verdict,
    close,
    first_sign,
    gang_of,
    judge,
    remember,
)
from meshwright.lifecycle.model import Decision, Observation, Policy
from meshwright.lifecycle.phases import PLANNED
from meshwright.lifecycle.stopping import stop_pods
from meshwright_api import names
from meshwright_api.status import Cause, Culprit, OpenIncident, Phase, TrainingJobStatus

STOP_GRACE_SECONDS = 30
"""After an incident nobody waits longer than this for the old processes."""


def open_incident(o: Observation, policy: Policy) -> Decision | None:
    """Ends the attempt on the first sign that it cannot go on."""
    status = o.status
    if status.phase not in PLANNED or holds(status, names.SUSPENDING):
        return None
    sign, unsure = first_sign(o, policy)
    if unsure:
        return Decision(confirm_pods=True, why="a pod is missing; reading afresh")
    sign = sign or overdue(o, policy) or _plan_lost(o)
    return _open(o, sign) if sign else None


def _plan_lost(o: Observation) -> Suspect | None:
    status = o.status
    unfinished = status.launched != status.attempt
    stored = status.plan_sha256 in (o.plan_stored, o.plan_in_hand)
    if unfinished and not stored and not plan_is_lost(o):
        return Suspect(Cause.PLAN_LOST, Culprit(reason="PlanDeleted"))
    return None


def _open(o: Observation, sign: Suspect) -> Decision:
    status = o.status
    incident = OpenIncident(attempt=status.attempt, opened_at=o.now, trigger=sign.cause, evidence=sign.culprit)
    status = status.model_copy(
        update={
            "phase": Phase.RESTARTING,
            "reason": sign.cause.value,
            "observed_generation": o.job.generation,
            "attempt": status.attempt + 1,
            "incident": incident,
        }
    )
    who = sign.culprit.pod or f"{sign.culprit.role}/{sign.culprit.index}"
    message = f"Attempt {incident.attempt} ended: {sign.cause.value} at {who}; stopping its processes."
    status = put(status, names.RUNNING, False, names.REASON_RESTARTING, message, now=o.now, generation=o.job.generation)
    return Decision(status=status, why=message)


def judge_incident(o: Observation, policy: Policy) -> Decision | None:
    """Stops the old processes; judges once all have ended or the time for evidence is over."""
    incident = o.status.incident
    if incident is None:
        return None
    if stops := stop_pods(o, policy, gang_of(o), STOP_GRACE_SECONDS):
        return Decision(actions=stops, why=f"stopping {len(stops)} pods of attempt {incident.attempt}")
    evidence_until = incident.opened_at + timedelta(seconds=policy.evidence_seconds)
    running = [pod for pod in gang_of(o) if not pod.ended]
    if running and evidence_until > o.now:
        why = f"{len(running)} pods still stopping; gathering evidence"
        return Decision(wake_after=seconds_until(evidence_until, o.now), why=why)
    if not o.pods_confirmed:
        # A pod that the cache does not show yet would run on beside the next attempt.
        return Decision(confirm_pods=True, why="about to judge; reading the pods afresh")
    return _close(o, policy, judge(o, policy, incident))


def _close(o: Observation, policy: Policy, verdict: Verdict) -> Decision:
    status = o.status
    assert status.incident is not None
    incident = close(status.incident, verdict, o.now)
    status = status.model_copy(
        update={
            "incident": None,
            "incidents": remember(status.incidents, incident),
            "observed_generation": o.job.generation,
        }
    )
    culprit, cause = verdict.suspect.culprit, verdict.suspect.cause
    who = f"{culprit.pod or culprit.role + '/' + str(culprit.index)} on {culprit.node or 'no node'}"
    what = f"{cause.value} at {who}" + (f", exit code {culprit.exit_code}" if culprit.exit_code is not None else "")
    if verdict.action == "Fail":
        return fail(o, status, names.REASON_RULE, f"A rule of spec.failurePolicy says Fail: {what}.")
    if verdict.charged and restarts_left(status.charged_restarts, policy, o.now) <= 0:
        limit = f"spec.failurePolicy.maxRestarts: {policy.max_restarts} in {policy.window_seconds} s are used up"
        return fail(o, status, names.REASON_MAX_RESTARTS, f"{what}; {limit}.")
    if not verdict.charged and disruptions_left(status.disruptions, policy, o.now) <= 0:
        limit = f"spec.failurePolicy.maxDisruptions: {policy.max_disruptions} in {policy.window_seconds} s are used up"
        return fail(o, status, names.REASON_MAX_DISRUPTIONS, f"{what}; {limit}.")
    return Decision(status=_count(o, policy, status, verdict), why=f"judged: {what}; charged: {verdict.charged}")


def _count(o: Observation, policy: Policy, status: TrainingJobStatus, verdict: Verdict) -> TrainingJobStatus:
    charged = within_window(status.charged_restarts, policy, o.now)
    disruptions = within_window(status.disruptions, policy, o.now)
    return status.model_copy(
        update={
            "charged_restarts": (*charged, o.now) if verdict.charged else charged,
            "disruptions": disruptions if verdict.charged else (*disruptions, o.now),
            "restarts": status.restarts + 1,
            "reason": verdict.suspect.cause.value,
        }
    )


def refund(o: Observation, policy: Policy) -> Decision | None:
    """Takes a charge back when a node of the gang turns out to have died under it."""
    last = o.status.incidents[-1] if o.status.incidents else None
    if last is None or not last.charged or o.status.incident:
        return None
    if o.now > last.judged_at + timedelta(seconds=REFUND_SECONDS):
        return None
    nodes = {pod.node for pod in o.pods if not pod.ended} | {last.culprit.node}
    lost = sorted(nodes & o.lost_nodes)
    if not lost:
        return None
    freed = last.model_copy(update={"charged": False, "cause": Cause.NODE_LOST, "action": "RestartFree"})
    charged = list(o.status.charged_restarts)
    if last.judged_at in charged:
        charged.remove(last.judged_at)
    status = o.status.model_copy(
        update={
            "incidents": (*o.status.incidents[:-1], freed),
            "charged_restarts": tuple(charged),
            "disruptions": (*o.status.disruptions, last.judged_at),
        }
    )
    return Decision(status=status, why=f"node {lost[0]} is lost: the last incident was its fault, not the job's")
