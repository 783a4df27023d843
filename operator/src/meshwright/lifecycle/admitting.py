"""From waiting to a committed plan."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from meshwright.lifecycle.conditions import holds, put
from meshwright.lifecycle.deadlines import start_active_clock, stop_active_clock
from meshwright.lifecycle.incidents import gang_of
from meshwright.lifecycle.model import Decision, Observation, Offer, Policy
from meshwright.lifecycle.stopping import remove_pods
from meshwright_api import names
from meshwright_api.status import Phase, PodCounts, TrainingJobStatus

QUOTA_SECONDS: Final = 5.0
"""How soon a gang that its namespace's quota keeps out asks again."""

_WITHOUT_PLAN = frozenset({None, Phase.PENDING, Phase.SUSPENDED, Phase.RESTARTING})


def plan_is_lost(o: Observation) -> bool:
    """Whether the committed plan was never stored and nobody holds it: its writer died between the two writes.

    With pods about, the loss is an incident instead, since they must be stopped first.
    """
    status = o.status
    return (
        status.phase is Phase.ADMITTED
        and status.launched != status.attempt
        and o.plan_stored != status.plan_sha256
        and o.plan_in_hand != status.plan_sha256
        and not gang_of(o)
    )


def awaits_plan(o: Observation) -> bool:
    """Whether the job needs a plan now. A job that restarts keeps its old plan's places until it has a new plan."""
    status = o.status
    if o.job.policy is None or status.incident or o.job.policy.suspend or holds(status, names.SUSPENDING):
        return False
    return status.phase in _WITHOUT_PLAN or plan_is_lost(o)


def needs_offer(o: Observation) -> bool:
    """Whether the gang queue must be asked before deciding."""
    return not o.job.deleting and awaits_plan(o)


def next_attempt(status: TrainingJobStatus) -> int:
    """The attempt that a plan committed now belongs to: an incident has numbered it already, a resume has not."""
    return status.attempt if status.attempt > status.planned else status.attempt + 1


def next_incarnation(status: TrainingJobStatus) -> int:
    """The incarnation that a plan committed now creates. Never reused, so a late writer's pods can be told apart."""
    return status.incarnation + 1


def admit(o: Observation, policy: Policy) -> Decision | None:
    """Commits the plan that was offered, or says why the job waits."""
    if not awaits_plan(o):
        return None
    if plan_is_lost(o) and not o.pods_confirmed:
        return Decision(confirm_pods=True, why="the committed plan is lost; reading the pods afresh")
    if o.offer is None:
        return Decision(wake_after=1, why="the queue has not answered")
    return _commit(o, policy, o.offer) if o.offer.plan_sha256 else _wait(o, policy, o.offer)


def _commit(o: Observation, policy: Policy, offer: Offer) -> Decision:
    status = start_active_clock(o.status, o.now)
    attempt, incarnation = next_attempt(status), next_incarnation(status)
    status = status.model_copy(
        update={
            "phase": Phase.ADMITTED,
            "reason": names.REASON_PLACED,
            "observed_generation": o.job.generation,
            "attempt": attempt,
            "planned": attempt,
            "incarnation": incarnation,
            "plan_sha256": offer.plan_sha256,
            "succeeded": (),
            "start_time": status.start_time or o.now,
            "admitted_time": o.now,
            "mesh": policy.mesh,
            "placement": offer.placement,
            "pods": PodCounts(desired=policy.size),
            "ready": f"0/{policy.size}",
        }
    )
    status = put(
        status,
        names.SCHEDULED,
        True,
        names.REASON_PLACED,
        f"Attempt {attempt}: every pod has its place. {offer.message}".rstrip(),
        now=o.now,
        generation=o.job.generation,
    )
    if holds(status, names.SUSPENDED):
        status = put(status, names.SUSPENDED, False, names.REASON_RESUMED, "", now=o.now, generation=o.job.generation)
    return Decision(status=status, why=f"attempt {attempt}: committing plan {offer.plan_sha256[:12]}")


def _wait(o: Observation, policy: Policy, offer: Offer) -> Decision:
    """Says why the job waits; a message whose numbers changed is refreshed, but not at every change.

    Where the quota counts them, what is left of its own ended pods goes first: else it would wait for itself for ever.
    """
    if offer.counts_ended_pods and (ended := remove_pods(o, policy, (pod for pod in o.pods if pod.over))):
        return Decision(actions=ended, why=f"removing {len(ended)} ended pods, which the quota counts")
    if (patience := _patience(o, policy)) > 0:
        return Decision(wake_after=patience, why=f"keeping its places for now: {offer.message}")
    status = queued(o, policy, offer.reason, offer.message)
    # That a gang was preempted may stand for a while: it says more than what it waits for now.
    told = o.status.phase is Phase.PENDING and o.status.reason == names.REASON_PREEMPTED
    news = (status.phase, status.reason if not told else o.status.reason, status.observed_generation) != (
        o.status.phase,
        o.status.reason,
        o.status.observed_generation,
    )
    if news or (status != o.status and o.progress_due):
        return Decision(status=status, why=f"waiting: {offer.message}")
    # No event tells that a quota has room again.
    again = QUOTA_SECONDS if offer.reason == names.REASON_QUOTA_EXCEEDED else None
    return Decision(wake_after=again if again or status == o.status else 30, why=f"waiting: {offer.message}")


def queued(o: Observation, policy: Policy, reason: str, message: str) -> TrainingJobStatus:
    """The status of a gang that waits in the queue."""
    status = stop_active_clock(o.status, o.now).model_copy(
        update={
            "phase": Phase.PENDING,
            "reason": reason,
            "observed_generation": o.job.generation,
            "admitted_time": None,
            # A waiting gang holds nothing: two that each held half of the other's place would wait for ever.
            "plan_sha256": "",
            "placement": None,
            "pods": PodCounts(desired=policy.size),
            "ready": f"0/{policy.size}",
            "mesh": policy.mesh,
        }
    )
    status = put(status, names.SCHEDULED, False, reason, message, now=o.now, generation=o.job.generation)
    if holds(status, names.SUSPENDED):
        status = put(status, names.SUSPENDED, False, names.REASON_RESUMED, "", now=o.now, generation=o.job.generation)
    return status


def _patience(o: Observation, policy: Policy) -> float:
    """For how many seconds a job that restarts keeps its places, although it cannot have all it needs now.

    It goes back to the queue only after the bind deadline, which does not count while its own pods still stop: they
    hold what it waits for. On a lost node they may do so for ever.
    """
    if o.status.phase is not Phase.RESTARTING or not o.status.incidents or o.preempted:
        return 0
    if any(not pod.over and pod.node and pod.node not in o.lost_nodes for pod in o.pods):
        return policy.bind_deadline_seconds
    until = o.status.incidents[-1].judged_at + timedelta(seconds=policy.bind_deadline_seconds)
    return max(0.0, (until - o.now).total_seconds())
