"""When a gang has succeeded, and which of its pods have."""

from __future__ import annotations

from meshwright.lifecycle.model import Pod, PodState, Policy
from meshwright.lifecycle.ranges import format_ranges, parse_ranges
from meshwright_api.status import RoleIndexes, TrainingJobStatus

Member = tuple[str, int]


def recorded(status: TrainingJobStatus) -> frozenset[Member]:
    """The members whose success is durable: it outlives their pods."""
    return frozenset((entry.role, index) for entry in status.succeeded for index in parse_ranges(entry.indexes))


def finished_by_itself(pod: Pod) -> bool:
    """Whether the pod ended before anybody asked it to stop.

    A script that saves and exits with 0 on SIGTERM has not finished its training. Times are whole seconds, so an end in
    the second of the request counts as an answer to it.
    """
    if pod.stop_requested_at is None:
        return True
    return pod.finished_at is not None and pod.finished_at < pod.stop_requested_at


def succeeded_now(status: TrainingJobStatus, pods: tuple[Pod, ...]) -> frozenset[Member]:
    """The recorded members and those that the given pods show to have succeeded."""
    fresh = {
        (pod.identity.role, pod.identity.index)
        for pod in pods
        if pod.identity.incarnation == status.incarnation
        and pod.state is PodState.SUCCEEDED
        and finished_by_itself(pod)
    }
    return recorded(status) | fresh


def record(members: frozenset[Member], policy: Policy) -> tuple[RoleIndexes, ...]:
    """The members in the form that a status keeps."""
    by_role = ((role.name, [i for name, i in members if name == role.name]) for role in policy.roles)
    return tuple(RoleIndexes(role=name, indexes=format_ranges(indexes)) for name, indexes in by_role if indexes)


def needed(policy: Policy) -> frozenset[Member]:
    """The members whose success is the job's.

    `AllWorkers`: every pod of every role, since every role has ranks: a `master` that still saves is not stopped
    because its `worker`s are done. `Rank0`: the first pod.
    """
    members = tuple(policy.members())
    return frozenset(members[:1] if policy.success == "Rank0" else members)
