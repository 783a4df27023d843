"""From a committed plan to a gang that runs."""

from __future__ import annotations

from meshwright.lifecycle.conditions import find, put
from meshwright.lifecycle.incidents import gang_of
from meshwright.lifecycle.model import CreatePod, Decision, Identity, Observation, Pod, PodState, Policy, StorePlan
from meshwright.lifecycle.phases import PLANNED
from meshwright.lifecycle.success import recorded, succeeded_now
from meshwright_api import names
from meshwright_api.status import Incident, Phase, PodCounts, TrainingJobStatus


def count_pods(status: TrainingJobStatus, gang: tuple[Pod, ...], policy: Policy) -> TrainingJobStatus:
    """The status with the gang's counts as they are now."""
    running = sum(pod.state is PodState.RUNNING for pod in gang)
    counts = PodCounts(desired=policy.size, running=running, succeeded=len(succeeded_now(status, gang)))
    return status.model_copy(update={"pods": counts, "ready": f"{running}/{policy.size}"})


def launch(o: Observation, policy: Policy) -> Decision | None:
    """Stores the plan, creates the pods in rank order, and notes when all have been created."""
    status = o.status
    if status.phase not in PLANNED or status.launched == status.attempt:
        return None
    if o.plan_stored != status.plan_sha256:
        if refused := _note_refusal(o):
            return refused
        return Decision(actions=(StorePlan(status.plan_sha256, status.incarnation),), why="storing the plan")
    present = {(pod.identity.role, pod.identity.index) for pod in gang_of(o)} | recorded(status)
    missing = [member for member in policy.members() if member not in present]
    if missing and (refused := _note_refusal(o)):
        return refused
    if missing:
        creates = tuple(CreatePod(Identity(role, index, status.incarnation)) for role, index in missing)
        return Decision(actions=creates, why=f"creating {len(creates)} pods")
    return _launched(o, policy)


def _note_refusal(o: Observation) -> Decision | None:
    """Says on the job itself that the API server refuses its pods or its plan; creating goes on being tried."""
    if not o.refusal:
        return None
    status = put(
        o.status, names.RUNNING, False, names.REASON_POD_REFUSED, o.refusal, now=o.now, generation=o.job.generation
    )
    same = find(o.status, names.RUNNING) == find(status, names.RUNNING)
    return None if same else Decision(status=status, why=f"the API server refuses what the gang needs: {o.refusal}")


def _launched(o: Observation, policy: Policy) -> Decision:
    status = o.status.model_copy(
        update={
            "launched": o.status.attempt,
            "phase": Phase.STARTING,
            "reason": names.REASON_STARTING,
            "observed_generation": o.job.generation,
        }
    )
    status = count_pods(status, gang_of(o), policy)
    if all_run(o, policy):
        status = _running(o, policy, status)
    return Decision(status=status, why=f"attempt {status.attempt}: all pods created")


def all_run(o: Observation, policy: Policy) -> bool:
    """Whether every pod of the gang runs or has succeeded."""
    up = {
        (pod.identity.role, pod.identity.index)
        for pod in gang_of(o)
        if pod.state in (PodState.RUNNING, PodState.SUCCEEDED)
    }
    return up | recorded(o.status) >= set(policy.members())


def run(o: Observation, policy: Policy) -> Decision | None:
    """Notes that the gang runs; refreshes counts now and then."""
    status = o.status
    if status.phase not in PLANNED or status.launched != status.attempt:
        return None
    if status.phase is Phase.STARTING and all_run(o, policy):
        return Decision(status=_running(o, policy, status), why=f"attempt {status.attempt} runs")
    if status.observed_generation != o.job.generation:
        seen = status.model_copy(update={"observed_generation": o.job.generation})
        return Decision(status=seen, why="the spec changed; its policy applies from now on")
    fresh = count_pods(status, gang_of(o), policy)
    if fresh != status and status.phase is Phase.STARTING and o.progress_due:
        return Decision(status=fresh, why="refreshing counts")
    return None


def _running(o: Observation, policy: Policy, status: TrainingJobStatus) -> TrainingJobStatus:
    gang = gang_of(o)
    images = [pod.image_id for pod in gang if pod.image_id]
    status = count_pods(status, gang, policy).model_copy(
        update={
            "phase": Phase.RUNNING,
            "reason": names.REASON_ALL_PODS_RUNNING,
            "observed_generation": o.job.generation,
            "image_id": status.image_id or (images[0] if images else ""),
            "incidents": _with_seconds_lost(o, status.incidents),
        }
    )
    message = f"Attempt {status.attempt}: {policy.size} of {policy.size} pods run."
    return put(
        status, names.RUNNING, True, names.REASON_ALL_PODS_RUNNING, message, now=o.now, generation=o.job.generation
    )


def _with_seconds_lost(o: Observation, incidents: tuple[Incident, ...]) -> tuple[Incident, ...]:
    if not incidents or incidents[-1].seconds_lost is not None:
        return incidents
    lost = int((o.now - incidents[-1].opened_at).total_seconds())
    return (*incidents[:-1], incidents[-1].model_copy(update={"seconds_lost": lost}))
