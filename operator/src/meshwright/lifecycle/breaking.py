"""Opening an incident, stopping the old processes, judging, and taking a charge back."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from meshwright.lifecycle.admitting import plan_is_lost, queued
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
from meshwright.lifecycle.progressing import step_reached
from meshwright.lifecycle.stopping import STOP_GRACE_SECONDS, stop_pods
from meshwright_api import names
from meshwright_api.status import Cause, Culprit, Incident, OpenIncident, Phase, TrainingJobStatus


def open_incident(o: Observation, policy: Policy) -> Decision | None:
    """Ends the attempt on the first sign that it cannot go on."""
    status = o.status
    if status.phase not in PLANNED or holds(status, names.SUSPENDING):
        return None
    sign, unsure = first_sign(o, policy)
    if unsure:
        return Decision(confirm_pods=True, why="a pod is missing; reading afresh")
    sign = sign or overdue(o, policy) or _plan_lost(o) or _preempted(o)
    return _open(o, sign) if sign else None


def _plan_lost(o: Observation) -> Suspect | None:
    status = o.status
    unfinished = status.launched != status.attempt
    stored = status.plan_sha256 in (o.plan_stored, o.plan_in_hand)
    if unfinished and not stored and not plan_is_lost(o):
        return Suspect(Cause.PLAN_LOST, Culprit(reason="PlanDeleted"))
    return None


def _preempted(o: Observation) -> Suspect | None:
    return Suspect(Cause.PREEMPTED, Culprit(reason=names.REASON_PREEMPTED)) if o.preempted else None


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
    where = f" at {_who(sign.culprit)}" if sign.culprit.role else ""
    message = f"Attempt {incident.attempt} ended: {sign.cause.value}{where}; stopping its processes."
    status = put(status, names.RUNNING, False, names.REASON_RESTARTING, message, now=o.now, generation=o.job.generation)
    return Decision(status=status, why=message)


def judge_incident(o: Observation, policy: Policy) -> Decision | None:
    """Stops the old processes; judges once all have ended or the time for evidence is over."""
    incident = o.status.incident
    if incident is None:
        return None
    # A gang that is preempted has done nothing wrong: it gets all the time for a checkpoint that its template asks for.
    at_most = None if incident.trigger is Cause.PREEMPTED else STOP_GRACE_SECONDS
    if stops := stop_pods(o, policy, gang_of(o), at_most):
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
    incident = close(status.incident, verdict, o.now, step_reached(status, status.incident.attempt))
    status = status.model_copy(
        update={
            "incident": None,
            "incidents": remember(status.incidents, incident),
            "observed_generation": o.job.generation,
        }
    )
    culprit, cause = verdict.suspect.culprit, verdict.suspect.cause
    what = f"{cause.value} at {_who(culprit)} on {culprit.node or 'no node'}" if culprit.role else cause.value
    what += f", exit code {culprit.exit_code}" if culprit.exit_code is not None else ""
    if verdict.action == "Fail":
        return fail(o, status, names.REASON_RULE, f"A rule of spec.failurePolicy says Fail: {what}.")
    if verdict.charged and restarts_left(status.charged_restarts, policy, o.now) <= 0:
        limit = f"spec.failurePolicy.maxRestarts: {policy.max_restarts} in {policy.window_seconds} s are used up"
        return fail(o, status, names.REASON_MAX_RESTARTS, f"{what}; {limit}.")
    if not verdict.charged and disruptions_left(status.disruptions, policy, o.now) <= 0:
        limit = f"spec.failurePolicy.maxDisruptions: {policy.max_disruptions} in {policy.window_seconds} s are used up"
        return fail(o, status, names.REASON_MAX_DISRUPTIONS, f"{what}; {limit}.")
    status = _count(o, policy, status, verdict)
    if cause is Cause.PREEMPTED:
        message = "Gave its places to a job of higher priority; back in the queue."
        status = queued(replace(o, status=status), policy, names.REASON_PREEMPTED, message)
    return Decision(status=status, why=f"judged: {what}; charged: {verdict.charged}")


def _who(culprit: Culprit) -> str:
    return culprit.pod or f"{culprit.role}/{culprit.index}"


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
    """Takes charges back when a node of the gang turns out to have died under it.

    Written together with the incident that the lost node opens, if it does.
    """
    lost = o.lost_nodes.intersection(pod.node for pod in o.pods if not pod.ended)
    since = o.now - timedelta(seconds=REFUND_SECONDS)
    status = o.status
    for incident in o.status.incidents:
        if incident.charged and incident.judged_at >= since and (lost or incident.culprit.node in o.lost_nodes):
            status = _take_back(status, incident)
    if status is o.status:
        return None
    follows = open_incident(replace(o, status=status), policy)
    if follows and follows.status:
        return follows
    return Decision(status=status, why="a node of the gang is lost: the last charge was its fault, not the job's")


def _take_back(status: TrainingJobStatus, charge: Incident) -> TrainingJobStatus:
    freed = charge.model_copy(update={"charged": False, "cause": Cause.NODE_LOST, "action": "RestartFree"})
    charged = list(status.charged_restarts)
    if charge.judged_at in charged:
        charged.remove(charge.judged_at)
    return status.model_copy(
        update={
            "incidents": tuple(freed if incident is charge else incident for incident in status.incidents),
            "charged_restarts": tuple(charged),
            "disruptions": tuple(sorted((*status.disruptions, charge.judged_at))),
        }
    )
