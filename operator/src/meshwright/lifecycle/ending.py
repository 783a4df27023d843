"""Success, failure, deadlines, and what remains to do afterwards."""

from __future__ import annotations

from datetime import timedelta

from meshwright.lifecycle.conditions import holds, put
from meshwright.lifecycle.deadlines import active_until, seconds_until, stop_active_clock
from meshwright.lifecycle.incidents import gang_of
from meshwright.lifecycle.model import Decision, DeleteJob, Observation, Policy
from meshwright.lifecycle.phases import ACTIVE, PLANNED
from meshwright.lifecycle.starting import count_pods
from meshwright.lifecycle.stopping import force_pods, remove_pods, stop_pods
from meshwright.lifecycle.success import needed, record, recorded, succeeded_now
from meshwright_api import names
from meshwright_api.status import Phase, TrainingJobStatus


def finish(o: Observation, policy: Policy) -> Decision | None:
    """Succeeds when the members that matter have; nothing that happens to others in the same moment takes that back."""
    status = o.status
    if status.phase not in PLANNED:
        return None
    done = succeeded_now(status, o.pods)
    if not done >= needed(policy):
        return None
    status = count_pods(stop_active_clock(status, o.now), gang_of(o), policy).model_copy(
        update={
            "phase": Phase.SUCCEEDED,
            "reason": names.REASON_COMPLETED,
            "observed_generation": o.job.generation,
            "succeeded": record(done, policy),
            "completion_time": o.now,
        }
    )
    message = f"Attempt {status.attempt}: {len(done)} of {policy.size} pods ended with exit code 0."
    return Decision(status=_over(o, status, names.SUCCEEDED, names.REASON_COMPLETED, message), why=message)


def record_successes(o: Observation, policy: Policy) -> Decision | None:
    """Makes the success of some pods durable, in case they are deleted before the others end.

    The first at once; the others may come one by one, so they are noted together.
    """
    if o.status.phase not in PLANNED or o.status.launched != o.status.attempt:
        return None
    done = succeeded_now(o.status, o.pods)
    known = recorded(o.status)
    if done == known or (known and not o.progress_due):
        return None
    status = o.status.model_copy(update={"succeeded": record(done, policy)})
    return Decision(status=count_pods(status, gang_of(o), policy), why=f"{len(done)} pods have succeeded")


def expire(o: Observation, policy: Policy) -> Decision | None:
    """Fails a job that has been active for longer than its spec allows."""
    end = active_until(o.status, policy)
    if o.status.phase not in ACTIVE or end is None or end > o.now:
        return None
    message = f"Active for spec.activeDeadlineSeconds: {policy.active_deadline_seconds}."
    return fail(o, o.status, names.REASON_ACTIVE_DEADLINE, message)


def fail(o: Observation, status: TrainingJobStatus, reason: str, message: str) -> Decision:
    """The job has failed for good."""
    status = stop_active_clock(status, o.now).model_copy(
        update={
            "phase": Phase.FAILED,
            "reason": reason,
            "observed_generation": o.job.generation,
            "completion_time": o.now,
            "incident": None,
        }
    )
    return Decision(status=_over(o, status, names.FAILED, reason, message), why=message)


def _over(o: Observation, status: TrainingJobStatus, kind: str, reason: str, message: str) -> TrainingJobStatus:
    """The status with the conditions of a job that is over: nothing runs, nothing is being suspended."""
    facts = [(kind, True), (names.RUNNING, False)]
    if holds(status, names.SUSPENDING):
        facts.append((names.SUSPENDING, False))
    for fact, value in facts:
        status = put(status, fact, value, reason, message, now=o.now, generation=o.job.generation)
    return status


def finished(o: Observation) -> Decision:
    """Terminal: stops what still runs, as `cleanPodPolicy` says; deletes the job when its time to live has passed."""
    policy = o.job.policy
    if policy is None:
        return Decision(why=f"{o.status.phase}: final; the spec cannot be read")
    if policy.clean_pods == "All":
        actions = remove_pods(o, policy, o.pods)
    elif policy.clean_pods == "Running":
        actions = stop_pods(o, policy, o.pods)
    else:
        actions = stop_pods(o, policy, (p for p in o.pods if p.identity.incarnation != o.status.incarnation))
    if actions:
        return Decision(actions=actions, why=f"{o.status.phase}: stopping {len(actions)} pods")
    if o.status.observed_generation != o.job.generation:
        seen = o.status.model_copy(update={"observed_generation": o.job.generation})
        return Decision(status=seen, why=f"{o.status.phase}: the spec changed; only its time to live matters now")
    rest = _time_to_live(o, policy)
    if not rest.actions and (forced := force_pods(o, policy, o.pods)):
        return Decision(actions=forced, why=f"{o.status.phase}: the nodes of {len(forced)} stopped pods are lost")
    return rest


def _time_to_live(o: Observation, policy: Policy) -> Decision:
    if policy.ttl_seconds is None or o.status.completion_time is None:
        return Decision(why=f"{o.status.phase}: final")
    end = o.status.completion_time + timedelta(seconds=policy.ttl_seconds)
    if end <= o.now:
        return Decision(
            actions=(DeleteJob(o.job.uid),), why=f"spec.ttlSecondsAfterFinished: {policy.ttl_seconds} have passed"
        )
    return Decision(wake_after=seconds_until(end, o.now), why=f"{o.status.phase}: final")
