"""Clocks that a job runs against: activity, start-up, binding, time to live."""

from __future__ import annotations

from datetime import datetime, timedelta

from meshwright.lifecycle.incidents import Suspect, culprit_of, gang_of
from meshwright.lifecycle.model import Observation, PodState, Policy
from meshwright_api.status import Cause, TrainingJobStatus


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
    """When the gang must run; None if it does or has no plan."""
    gang = gang_of(o)
    running = len(gang) == policy.size and all(pod.state is not PodState.WAITING for pod in gang)
    if o.status.admitted_time is None or running:
        return None
    return o.status.admitted_time + timedelta(seconds=policy.startup_deadline_seconds)


def bind_until(o: Observation, policy: Policy) -> datetime | None:
    """When the gang's unbound pods must be bound; None if all are, or if older pods of ours still hold the places."""
    if o.undisturbed_since is None:
        return None
    unbound = [pod.created_at for pod in gang_of(o) if not pod.node and not pod.stopping and pod.created_at]
    if not unbound:
        return None
    return max(min(unbound), o.undisturbed_since) + timedelta(seconds=policy.bind_deadline_seconds)


def overdue(o: Observation, policy: Policy) -> Suspect | None:
    """The deadline that has passed, with the first pod that missed it."""
    gang = gang_of(o)
    bind, start_up = bind_until(o, policy), start_up_until(o, policy)
    if bind and bind <= o.now:
        unbound = next(pod for pod in gang if not pod.node)
        return Suspect(Cause.BIND_DEADLINE, culprit_of(unbound))
    if start_up and start_up <= o.now:
        waiting = [pod for pod in gang if pod.state is PodState.WAITING]
        late = next((pod for pod in waiting if pod.waiting), waiting[0] if waiting else None)
        return Suspect(Cause.STARTUP_DEADLINE, culprit_of(late)) if late else None
    return None


def next_deadline(o: Observation, policy: Policy) -> float | None:
    """Seconds until the first of the running clocks; None if none runs."""
    moments = (active_until(o.status, policy), start_up_until(o, policy), bind_until(o, policy))
    return min((seconds_until(m, o.now) for m in moments if m), default=None)
