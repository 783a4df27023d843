"""Stopping pods: for an incident, for a suspension, and those that a newer incarnation has replaced."""

from __future__ import annotations

from collections.abc import Iterable

from meshwright.lifecycle.conditions import holds, put
from meshwright.lifecycle.deadlines import stop_active_clock
from meshwright.lifecycle.model import Decision, DeletePod, Observation, Pod, Policy
from meshwright.lifecycle.phases import PLANNED
from meshwright_api import names
from meshwright_api.status import Phase, PodCounts, TrainingJobStatus

STOP_GRACE_SECONDS = 30
"""After an incident nobody waits longer than this for the old processes."""


def by_force(o: Observation, policy: Policy, pod: Pod) -> bool:
    """Whether the pod's node will never confirm its end, and the policy allows not to wait for that."""
    return policy.force_delete_on_lost_node and pod.node in o.lost_nodes


def stop_pods(o: Observation, policy: Policy, pods: Iterable[Pod], at_most: int | None = None) -> tuple[DeletePod, ...]:
    """Deletions for pods that run and that nobody has asked to stop; on lost nodes by force, if the policy says so.

    A pod whose judged container has ended runs on, and keeps its room, as long as another one of its containers does.
    """
    actions = []
    for pod in pods:
        if pod.over or pod.stopping:
            continue
        grace = policy.grace_of(pod.identity.role)
        grace = grace if at_most is None else min(grace, at_most)
        actions.append(DeletePod(pod.name, pod.uid, 0 if by_force(o, policy, pod) else grace))
    return tuple(actions)


def force_pods(o: Observation, policy: Policy, pods: Iterable[Pod]) -> tuple[DeletePod, ...]:
    """Deletions by force for pods whose lost node does not confirm their end; those that have ended hang there too.

    Asked for again until the pod is gone, so it belongs where nothing else waits for it.
    """
    return tuple(DeletePod(pod.name, pod.uid, 0) for pod in pods if pod.stopping and by_force(o, policy, pod))


def remove_pods(o: Observation, policy: Policy, pods: Iterable[Pod]) -> tuple[DeletePod, ...]:
    """Deletions for all of those pods, also for those that have ended."""
    pods = tuple(pods)
    ended = tuple(DeletePod(pod.name, pod.uid, 0) for pod in pods if pod.over and not pod.stopping)
    return (*stop_pods(o, policy, pods), *ended, *force_pods(o, policy, pods))


def stop_leftovers(o: Observation, policy: Policy) -> Decision | None:
    """Stops pods that run while no plan is committed: those that a deposed leader created when all was over."""
    if o.status.phase in PLANNED or o.status.phase is None:
        return None
    actions = stop_pods(o, policy, o.pods, STOP_GRACE_SECONDS)
    return Decision(actions=actions, why=f"stopping {len(actions)} pods that nobody planned") if actions else None


def clear_old_pods(o: Observation, policy: Policy) -> Decision | None:
    """Removes what a newer incarnation has replaced, except the last culprit's remains, kept for who looks into it."""
    culprit = o.status.incidents[-1].culprit.pod_uid if o.status.incidents else ""
    old = [pod for pod in o.pods if pod.identity.incarnation < o.status.incarnation]
    actions = remove_pods(o, policy, (pod for pod in old if not (pod.over and pod.uid == culprit)))
    if not actions or o.status.incident:
        return None
    return Decision(actions=actions, why=f"removing {len(actions)} pods of older incarnations")


def let_go(o: Observation) -> Decision:
    """Deleted: the garbage collector removes what the job owns, and waits for pods that a lost node never lets go."""
    forced = force_pods(o, o.job.policy, o.pods) if o.job.policy else ()
    if forced:
        return Decision(actions=forced, why=f"deleted; the nodes of {len(forced)} of its pods are lost")
    return Decision(why="deleted; the garbage collector removes what it owns")


def suspend(o: Observation, policy: Policy) -> Decision | None:
    """Stops the gang when asked to. Once begun it is carried through, since pods have been stopped already."""
    under_way = holds(o.status, names.SUSPENDING)
    if not (policy.suspend or under_way):
        return None
    if o.status.phase is Phase.SUSPENDED:
        return _stay_suspended(o, policy) if policy.suspend else None
    if not o.pods and not o.pods_confirmed and o.status.attempt:
        return Decision(confirm_pods=True, why="about to be suspended; reading the pods afresh")
    if not o.pods:
        return Decision(status=_suspended(o, policy), why="suspended: no pod remains")
    if not under_way:
        message = f"Stopping {len(o.pods)} pods; the phase changes when none remains."
        status = put(
            o.status,
            names.SUSPENDING,
            True,
            names.REASON_SUSPEND_REQUESTED,
            message,
            now=o.now,
            generation=o.job.generation,
        )
        return Decision(status=status.model_copy(update={"observed_generation": o.job.generation}), why=message)
    actions = remove_pods(o, policy, o.pods)
    return Decision(actions=actions, why=f"suspending: {len(o.pods)} pods remain")


def _stay_suspended(o: Observation, policy: Policy) -> Decision:
    """Nothing runs; what a deposed leader created late is removed, and an edited spec is acknowledged."""
    if o.pods and (actions := remove_pods(o, policy, o.pods)):
        return Decision(actions=actions, why=f"suspended: removing {len(actions)} pods that came late")
    if o.status.observed_generation != o.job.generation:
        seen = o.status.model_copy(update={"observed_generation": o.job.generation})
        return Decision(status=seen, why="suspended: the spec changed")
    return Decision(why="suspended")


def _suspended(o: Observation, policy: Policy) -> TrainingJobStatus:
    status = stop_active_clock(o.status, o.now).model_copy(
        update={
            "phase": Phase.SUSPENDED,
            "reason": names.REASON_SUSPEND_REQUESTED,
            "observed_generation": o.job.generation,
            "plan_sha256": "",
            "placement": None,
            "admitted_time": None,
            "succeeded": (),
            "pods": PodCounts(desired=policy.size),
            "ready": f"0/{policy.size}",
        }
    )
    facts = (
        (names.SUSPENDED, True, "Suspended by spec.suspend; set it to false to resume."),
        (names.SUSPENDING, False, ""),
        (names.RUNNING, False, ""),
        (names.SCHEDULED, False, "Suspended jobs hold no place."),
    )
    for kind, value, message in facts:
        if value or holds(status, kind):
            reason = names.REASON_SUSPEND_REQUESTED
            status = put(status, kind, value, reason, message, now=o.now, generation=o.job.generation)
    return status
