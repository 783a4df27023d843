"""What ended an attempt, who began it, and what the failure policy makes of it.

An incident is opened on the first sign and judged later: the exit that is seen first is usually a peer's, whose
collective failed because the culprit was gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from meshwright.lifecycle.model import FailureAction, Observation, Pod, PodState, Policy, Rule
from meshwright.lifecycle.success import finished_by_itself, recorded
from meshwright_api.status import MAX_INCIDENTS, MAX_LAST_WORDS, Cause, Culprit, Incident, OpenIncident

OUT_OF_MEMORY_REASON: Final = "OOMKilled"
EVICTED_REASON: Final = "Evicted"
KUBELET_REFUSALS: Final = (
    "UnexpectedAdmissionError",
    "TopologyAffinityError",
    "OutOf",
    "NodeAffinity",
    "NodePorts",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
)
"""Prefixes of reasons with which a kubelet refuses a pod that the scheduler had sent it, or ends it with its node."""

STOP_SIGNALS: Final = frozenset({143, 137})
"""Exit codes of a process that ended by the SIGTERM or SIGKILL of a stop."""

FENCED_EXIT: Final = 76
"""Exit code of a process under the agent that found a newer attempt at work on its checkpoints."""

FREE: Final = frozenset(
    {
        Cause.NODE_LOST,
        Cause.DISRUPTED,
        Cause.PREEMPTED,
        Cause.FENCED,
        Cause.KUBELET_REFUSED,
        Cause.POD_LOST,
        Cause.BIND_DEADLINE,
        Cause.PLAN_LOST,
    }
)
"""Causes that are not the job's fault: they count as disruptions. An eviction for the pod's own limits is its fault."""

PRECEDENCE: Final = (
    Cause.NODE_LOST,
    Cause.DISRUPTED,
    Cause.OUT_OF_MEMORY,
    Cause.FENCED,
    Cause.RULE,
    Cause.KUBELET_REFUSED,
    Cause.EVICTED,
    Cause.EXIT_CODE,
    Cause.POD_LOST,
    Cause.PREEMPTED,
    Cause.STARTUP_DEADLINE,
    Cause.BIND_DEADLINE,
    Cause.PLAN_LOST,
)
"""The cause that explains the others comes first."""

REFUND_SECONDS: Final = 120
"""A node is called NotReady some 47 s after it died: a restart charged shortly before was the node's fault."""

_LATE: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Suspect:
    """A pod with the cause that it would be the culprit of."""

    cause: Cause
    culprit: Culprit


@dataclass(frozen=True, slots=True)
class Verdict:
    """What an incident came from and what follows."""

    suspect: Suspect
    action: FailureAction
    charged: bool


def culprit_of(pod: Pod) -> Culprit:
    """The pod as an incident remembers it."""
    return Culprit(
        pod=pod.name,
        pod_uid=pod.uid,
        role=pod.identity.role,
        index=pod.identity.index,
        node=pod.node,
        exit_code=pod.exit_code,
        reason=pod.disruption or pod.reason or pod.waiting,
        finished_at=pod.finished_at,
        last_words=pod.last_words[-MAX_LAST_WORDS:],
    )


def matching_rule(policy: Policy, culprit: Culprit) -> Rule | None:
    """The first rule of the failure policy that speaks of this pod."""
    for rule in policy.rules:
        if rule.role and rule.role != culprit.role:
            continue
        if rule.exit_codes and culprit.exit_code not in rule.exit_codes:
            continue
        if rule.reasons and culprit.reason not in rule.reasons:
            continue
        return rule
    return None


def fell_by_stop(pod: Pod) -> bool:
    """Whether the pod's end was the answer to a request to stop, and so says nothing about the incident.

    Times are whole seconds of two clocks: from the second before the request on, the exit codes of a stop are one.
    """
    if pod.stop_requested_at is None or not pod.ended:
        return False
    if pod.finished_at is None or pod.finished_at > pod.stop_requested_at:
        return True
    by_signal = pod.exit_code in STOP_SIGNALS and pod.reason != OUT_OF_MEMORY_REASON
    return by_signal and pod.finished_at >= pod.stop_requested_at - timedelta(seconds=1)


def cause_of(pod: Pod, policy: Policy) -> Cause | None:
    """What this pod alone says of the incident; None if it says nothing."""
    if pod.state is PodState.SUCCEEDED:
        return None
    if pod.disruption:
        return Cause.DISRUPTED
    if pod.state is not PodState.FAILED or fell_by_stop(pod):
        return None
    if pod.reason == OUT_OF_MEMORY_REASON:
        return Cause.OUT_OF_MEMORY
    if policy.agent and pod.exit_code == FENCED_EXIT:
        return Cause.FENCED
    if matching_rule(policy, culprit_of(pod)):
        return Cause.RULE
    if pod.reason.startswith(KUBELET_REFUSALS):
        return Cause.KUBELET_REFUSED
    if pod.reason == EVICTED_REASON:
        return Cause.EVICTED
    return Cause.EXIT_CODE


def gang_of(o: Observation) -> tuple[Pod, ...]:
    """The pods of the current incarnation."""
    return tuple(pod for pod in o.pods if pod.identity.incarnation == o.status.incarnation)


def suspects(o: Observation, policy: Policy) -> tuple[Suspect, ...]:
    """Everything that the pods of the current incarnation say now of an incident."""
    found = []
    for pod in gang_of(o):
        if pod.node in o.lost_nodes and not pod.ended:
            found.append(Suspect(Cause.NODE_LOST, culprit_of(pod)))
        elif cause := cause_of(pod, policy):
            found.append(Suspect(cause, culprit_of(pod)))
    return tuple(found)


def foremost(found: Iterable[Suspect]) -> Suspect | None:
    """The one that explains the others: by precedence of cause, then by who ended first, then by rank."""
    return min(
        found,
        key=lambda s: (
            PRECEDENCE.index(s.cause),
            s.culprit.finished_at or _LATE,
            not _was_killed(s.culprit),
            s.culprit.role,
            s.culprit.index or 0,
        ),
        default=None,
    )


def _was_killed(culprit: Culprit) -> bool:
    """Whether a signal ended it: of two that ended in the same second, the other gave up because its peer was gone."""
    return (culprit.exit_code or 0) > 128


def deleted_by_others(gang: tuple[Pod, ...]) -> Pod | None:
    """The first pod that somebody else deletes. Meaningful only while no stop of ours is under way.

    It may have ended already, but as an answer to that: it did not finish, nor fail, by itself.
    """
    stopping = (pod for pod in gang if pod.stopping and not (pod.ended and _ended_by_itself(pod)))
    return min(
        stopping, key=lambda pod: (pod.stop_requested_at or _LATE, pod.identity.role, pod.identity.index), default=None
    )


def _ended_by_itself(pod: Pod) -> bool:
    return finished_by_itself(pod) if pod.state is PodState.SUCCEEDED else not fell_by_stop(pod)


def first_sign(o: Observation, policy: Policy) -> tuple[Suspect | None, bool]:
    """What opens an incident now, and whether the pods must be read afresh before that can be said."""
    gang, done = gang_of(o), recorded(o.status)
    gang = tuple(pod for pod in gang if (pod.identity.role, pod.identity.index) not in done)
    suspect, deleted = foremost(suspects(o, policy)), deleted_by_others(gang)
    if deleted and (suspect is None or _came_after(suspect, deleted)):
        return Suspect(Cause.POD_LOST, culprit_of(deleted)), False
    if suspect:
        return suspect, False
    return _missing(o, policy, gang)


def _came_after(suspect: Suspect, deleted: Pod) -> bool:
    """Whether a pod failed because another was deleted: its collective lost a peer."""
    failed_at = suspect.culprit.finished_at or _LATE
    return suspect.cause in (Cause.EXIT_CODE, Cause.RULE) and (deleted.stop_requested_at or _LATE) <= failed_at


def _missing(o: Observation, policy: Policy, gang: tuple[Pod, ...]) -> tuple[Suspect | None, bool]:
    done = recorded(o.status)
    present = {(pod.identity.role, pod.identity.index) for pod in gang}
    launched = o.status.launched == o.status.planned
    for role, index in policy.members():
        if (role, index) in present or (role, index) in done:
            continue
        seen = any(v.role == role and v.index == index and v.incarnation == o.status.incarnation for v in o.vanished)
        if not (launched or seen):
            continue
        if not o.pods_confirmed:
            return None, True
        return Suspect(Cause.POD_LOST, Culprit(role=role, index=index, reason="Deleted")), False
    return None, False


def judge(o: Observation, policy: Policy, incident: OpenIncident) -> Verdict:
    """The verdict on an open incident, from its first sign and what the pods say now."""
    first = Suspect(incident.trigger, incident.evidence)
    if incident.trigger is Cause.PREEMPTED:
        # The gang was whole when it was told to stop; how its pods end says nothing more.
        return Verdict(first, "RestartFree", charged=False)
    found = [first, *(suspect for suspect in suspects(o, policy) if not _was_answer(suspect, incident))]
    if incident.evidence.node and incident.evidence.node in o.lost_nodes:
        found.append(Suspect(Cause.NODE_LOST, incident.evidence))
    if incident.trigger is Cause.POD_LOST:
        # Somebody deleted the pod; that its peers failed afterwards explains nothing, but a node or an OOM would.
        found = [s for s in found if s.cause not in (Cause.EXIT_CODE, Cause.RULE)]
    suspect = foremost(found) or first
    if suspect.cause in (Cause.NODE_LOST, Cause.DISRUPTED, Cause.FENCED):
        return Verdict(suspect, "RestartFree", charged=False)
    if rule := matching_rule(policy, suspect.culprit) if suspect.culprit.pod else None:
        return Verdict(suspect, rule.action, charged=rule.action == "Restart")
    free = suspect.cause in FREE
    return Verdict(suspect, "RestartFree" if free else "Restart", charged=not free)


def _was_answer(suspect: Suspect, incident: OpenIncident) -> bool:
    """Whether a pod ended since it heard from us that the next attempt is wanted; times are whole seconds."""
    since = incident.opened_at.replace(microsecond=0)
    return suspect.cause is Cause.FENCED and (suspect.culprit.finished_at or _LATE) >= since


def close(incident: OpenIncident, verdict: Verdict, now: datetime, step_reached: int | None) -> Incident:
    """The incident as history keeps it."""
    return Incident(
        attempt=incident.attempt,
        trigger=incident.trigger,
        cause=verdict.suspect.cause,
        charged=verdict.charged,
        action=verdict.action,
        culprit=verdict.suspect.culprit,
        opened_at=incident.opened_at,
        judged_at=now,
        step_reached=step_reached,
    )


def remember(history: tuple[Incident, ...], incident: Incident) -> tuple[Incident, ...]:
    """The history with this incident, bounded."""
    return (*history, incident)[-MAX_INCIDENTS:]
