"""Clocks that a job runs against: activity, start-up, binding, time to live."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from meshwright.lifecycle.incidents import Suspect, culprit_of, gang_of
from meshwright.lifecycle.model import Observation, Pod, PodState, Policy
from meshwright.lifecycle.starting import all_run
from meshwright.lifecycle.success import recorded
from meshwright_api import names
from meshwright_api.status import MAX_LAST_WORDS, Cause, Culprit, Phase, TrainingJobStatus

UNSCHEDULABLE: Final = "Unschedulable"


def seconds_until(moment: datetime, now: datetime) -> float:
    """Seconds from now to a moment; 0 if it has passed."""
    return max(0.0, (moment - now).total_seconds())


def active_seconds(status: TrainingJobStatus, now: datetime) -> int:
    """Seconds that the job has been active: neither queueing nor suspended."""
    running = (now - status.active_since).total_seconds() if status.active_since else 0
    return status.active_seconds + int(running)


def active_until(status: TrainingJobStatus, policy: Policy) -> datetime | None:
    """When `activeDeadlineSeconds` will have passed if the job stays active; None if that clock stands."""
    if policy.active_deadline_seconds is None or status.active_since is None:
        return None
    return status.active_since + timedelta(seconds=policy.active_deadline_seconds - status.active_seconds)


def start_active_clock(status: TrainingJobStatus, now: datetime) -> TrainingJobStatus:
    """The status with the activity clock running."""
    return status if status.active_since else status.model_copy(update={"active_since": now})


def stop_active_clock(status: TrainingJobStatus, now: datetime) -> TrainingJobStatus:
    """The status with the activity clock standing."""
    if status.active_since is None:
        return status
    return status.model_copy(update={"active_since": None, "active_seconds": active_seconds(status, now)})


def start_up_until(o: Observation, policy: Policy) -> datetime | None:
    """When the gang must run; None if it has run or has no plan."""
    if o.status.admitted_time is None or o.status.phase not in (Phase.ADMITTED, Phase.STARTING) or all_run(o, policy):
        return None
    return o.status.admitted_time + timedelta(seconds=policy.startup_deadline_seconds)


def bind_until(o: Observation, policy: Policy) -> datetime | None:
    """When the gang's unbound pods must be bound; None if all are, or if older pods of ours still hold the places."""
    if o.undisturbed_since is None:
        return None
    since = [pod.created_at for pod in _unbound(o) if pod.created_at]
    if not since:
        return None
    return max(min(since), o.undisturbed_since) + timedelta(seconds=policy.bind_deadline_seconds)


def _unbound(o: Observation) -> tuple[Pod, ...]:
    return tuple(pod for pod in gang_of(o) if not pod.node and not pod.stopping and not pod.ended and pod.created_at)


def overdue(o: Observation, policy: Policy) -> Suspect | None:
    """The deadline that has passed, with the first pod that missed it."""
    bind, start_up = bind_until(o, policy), start_up_until(o, policy)
    if bind and bind <= o.now:
        return Suspect(Cause.BIND_DEADLINE, _refused_by_scheduler(_unbound(o)))
    if start_up and start_up <= o.now:
        return Suspect(Cause.STARTUP_DEADLINE, _late(o, policy))
    return None


def _refused_by_scheduler(unbound: tuple[Pod, ...]) -> Culprit:
    """The first that kube-scheduler says it cannot bind, else the first; with the node that it was made for."""
    pod = next((pod for pod in unbound if pod.waiting == UNSCHEDULABLE), unbound[0])
    return culprit_of(replace(pod, node=pod.pinned))


def _late(o: Observation, policy: Policy) -> Culprit:
    """The pod that says why it does not run yet, or the first that does not, or the first that could not be created."""
    waiting = [pod for pod in gang_of(o) if pod.state is PodState.WAITING]
    if waiting:
        return culprit_of(next((pod for pod in waiting if pod.waiting), waiting[0]))
    there = {(pod.identity.role, pod.identity.index) for pod in gang_of(o)} | recorded(o.status)
    role, index = next(member for member in policy.members() if member not in there)
    reason = names.REASON_POD_REFUSED if o.refusal else "NotCreated"
    return Culprit(role=role, index=index, reason=reason, last_words=o.refusal[-MAX_LAST_WORDS:])


def next_deadline(o: Observation, policy: Policy) -> float | None:
    """Seconds until the first of the running clocks; None if none runs."""
    moments = (active_until(o.status, policy), start_up_until(o, policy), bind_until(o, policy))
    return min((seconds_until(m, o.now) for m in moments if m), default=None)
