"""ComputeDomains go when no pod of the job runs any more: a channel that closes under a process ends it.

The garbage collector knows no such order. So a job with domains has a finalizer of ours, and when the job is deleted
its pods are stopped by us; all other jobs have none and need nobody to be deleted.
"""

from __future__ import annotations

from meshwright.lifecycle.model import Decision, DeletePod, Observation, Pod, ReleaseDomains
from meshwright.lifecycle.phases import TERMINAL
from meshwright.lifecycle.stopping import force_pods, stop_pods
from meshwright_api.status import Phase

_GRACE_SECONDS = 30


def release(o: Observation) -> Decision | None:
    """What is next for the domains of a job that is deleted, over or suspended; None if it has none or still runs."""
    if not o.job.holds_domains:
        return None
    over = o.status.phase in TERMINAL or o.status.phase is Phase.SUSPENDED
    running = tuple(pod for pod in o.pods if not pod.over)
    if not (o.job.deleting or over) or (running and not o.job.deleting):
        return None
    if running:
        return _stop(o, running)
    if not o.pods_confirmed:
        return Decision(confirm_pods=True, why="about to release the ComputeDomains; reading the pods afresh")
    return Decision(actions=(ReleaseDomains(o.job.uid),), why="no pod runs: releasing the ComputeDomains")


def _stop(o: Observation, running: tuple[Pod, ...]) -> Decision:
    policy = o.job.policy
    if policy is not None:
        actions = (*stop_pods(o, policy, running), *force_pods(o, policy, running))
    else:
        actions = tuple(DeletePod(pod.name, pod.uid, _GRACE_SECONDS) for pod in running if not pod.stopping)
    return Decision(actions=actions, why="deleted; its pods stop before their ComputeDomains go")
