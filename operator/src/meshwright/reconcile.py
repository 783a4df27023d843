"""One pass for one job: observe, decide, act.

A pass repeats the three until a decision has nothing to do now. Each round either writes the status, against the very
version that was decided from, or carries out actions that may be repeated; so a process may die between any two steps.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Final, Protocol

from meshwright.acting import Refused, carry_out, load_plan
from meshwright.cluster.api import ApiServer
from meshwright.cluster.caches import NodeCache, PodCache, live_gang
from meshwright.cluster.errors import Conflict, NotFound
from meshwright.cluster.resources import TRAININGJOBS
from meshwright.gang_queue import GangQueue
from meshwright.ground import ground_of
from meshwright.jobs import Jobs, KnownJob
from meshwright.lifecycle.admitting import next_attempt, next_incarnation
from meshwright.lifecycle.avoid import nodes_to_avoid
from meshwright.lifecycle.decide import decide, needs_offer
from meshwright.lifecycle.model import CreatePod, Decision, DeletePod, Observation, Offer
from meshwright.lifecycle.phases import PLANNED, TERMINAL
from meshwright.lifecycle.progressing import only_progress
from meshwright.lookups import Lookups, Rank
from meshwright.observing import observe, read_job
from meshwright.pace import Pace
from meshwright.placement.model import Placed
from meshwright.placement.queueing.preemption import Holder
from meshwright.placement.queueing.quota import Quota
from meshwright.progress import ProgressBoard
from meshwright.quotas import Promises
from meshwright.rendering import gang as rendering
from meshwright.rendering.surroundings import suited
from meshwright.settings import Settings
from meshwright.status_patch import as_json, merge_patch
from meshwright_api import names
from meshwright_api.job import TrainingJob
from meshwright_api.status import Cause, Phase, PlacementStatus, TrainingJobStatus

logger = logging.getLogger(__name__)

MAX_ROUNDS: Final = 12
"""Rounds of one pass; an ordinary start takes five. More would mean two decisions that undo each other."""

PROGRESS_WRITES_PER_SECOND: Final = 10.0

REFUSAL_RETRY_SECONDS: Final = 15.0
LOOK_AGAIN_SECONDS: Final = 5.0
"""How soon to look again after deletions, in case no event tells that they are done."""


class Recorder(Protocol):
    """Who is told of what happened: events and metrics."""

    def wrote(self, known: KnownJob, old: TrainingJobStatus, new: TrainingJobStatus) -> None:
        """A status was written."""

    def passed(self, outcome: str, seconds: float, error: str = "") -> None:
        """A pass is over: `done`, `error` (of that type) or `not_leading`."""

    def decided(self, observation: Observation, decision: Decision) -> None:
        """A decision that does something was made."""


@dataclass(frozen=True)
class Surroundings:
    """Everything that a pass works with."""

    api: ApiServer
    jobs: Jobs
    pods: PodCache
    nodes: NodeCache
    queue: GangQueue
    lookups: Lookups
    settings: Settings
    recorder: Recorder
    board: ProgressBoard
    promises: Promises = field(default_factory=Promises)
    pace: Pace = field(default_factory=lambda: Pace(PROGRESS_WRITES_PER_SECOND))
    """Of writes that only tell of progress, over all jobs."""
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)


async def reconcile(world: Surroundings, uid: str) -> float | None:
    """One pass for the job with this UID.

    Returns:
        Seconds until the next pass is due without any event; None if only an event can change anything.

    Raises:
        ApiError: the API server failed; the pass is to be repeated.
    """
    for _ in range(MAX_ROUNDS):
        known = world.jobs.get(uid)
        if known is None:
            return None
        observation = await _observe(world, known)
        decision = await _decide(world, known, observation)
        _keep_places(world, observation)
        if decision.status is None and not decision.actions:
            return decision.wake_after
        routine = decision.status is not None and _is_routine(observation.status, decision.status)
        if routine and (pause := world.pace.wait()):
            return pause
        world.recorder.decided(observation, decision)
        level = logging.DEBUG if routine else logging.INFO
        logger.log(level, "%s", decision.why, extra={"job": f"{observation.job.namespace}/{observation.job.name}"})
        if decision.status is not None:
            await _write(world, known, observation.status, decision.status)
        elif (wait := await _act(world, known, observation, decision)) is not None:
            return wait
    logger.warning("a pass over job %s did not come to rest in %d rounds", uid, MAX_ROUNDS)
    return LOOK_AGAIN_SECONDS


async def _observe(world: Surroundings, known: KnownJob) -> Observation:
    """Everything that the decision may depend on."""
    job, parsed, status = read_job(known)
    now = world.clock()
    if status.phase in PLANNED and status.launched != status.attempt:
        await _find_plan(world, known, status)
    observation = observe(known, job, status, world.pods, world.nodes, world.settings, now)
    holds_places = status.phase in (*PLANNED, Phase.RESTARTING)
    observation = replace(
        observation,
        progress=world.board.latest(job.uid),
        preempted=holds_places and world.queue.must_yield(job.uid, now),
    )
    if parsed is not None and needs_offer(observation):
        rules = world.settings.rendering_for(await world.lookups.namespace_labels(job.namespace))
        rank = await world.lookups.rank(parsed.spec.queue.priority_class_name)
        quotas = await world.lookups.quotas(job.namespace)
        try:
            offer = _ask_for_places(world, known, parsed, observation, rules, rank, quotas)
        except rendering.Unrenderable as error:
            # A job that cannot have pods as things are keeps no place in the queue meanwhile.
            world.queue.leave(job.uid)
            offer = Offer(reason=error.reason, message=str(error))
        observation = replace(observation, offer=offer)
    return observation


async def _decide(world: Surroundings, known: KnownJob, observation: Observation) -> Decision:
    """The decision; made again from a fresh list when a pod seems to be missing."""
    began = time.thread_time()
    decision = decide(observation)
    known.memory.deciding_seconds = time.thread_time() - began
    if decision.confirm_pods:
        pods = await live_gang(world.api, observation.job)
        decision = decide(replace(observation, pods=pods, pods_confirmed=True))
    return decision


async def _find_plan(world: Surroundings, known: KnownJob, status: TrainingJobStatus) -> None:
    """Makes sure of the committed plan: in hand from before, or as the API server holds it."""
    memory = known.memory
    if status.plan_sha256 in (memory.stored, memory.frozen.sha256 if memory.frozen else ""):
        return
    frozen = await load_plan(world.api, known, status.incarnation, status.plan_sha256)
    if frozen is not None:
        memory.frozen, memory.stored = frozen, frozen.sha256
        world.queue.reserve(rendering.reservation(frozen))


def _ask_for_places(
    world: Surroundings,
    known: KnownJob,
    parsed: TrainingJob,
    o: Observation,
    rules: rendering.RenderSettings,
    rank: Rank,
    quotas: tuple[Quota, ...],
) -> Offer:
    """Asks the queue; an offer is a rendered plan whose places are reserved at once, before anybody else is asked.

    Raises:
        Unrenderable: the job cannot have pods as things are.
    """
    rules = suited(parsed, rules, world.settings.profiles, world.nodes.capacities)
    before = world.queue.held_by(o.job.uid)
    request = rendering.request(
        parsed,
        priority=rank.value,
        avoid=nodes_to_avoid(o.status, o.now) | o.lost_nodes,
        prefer=before.nodes if before else {},
        profile=rules.profile,
    )
    request = replace(request, preempts=rank.preempts)
    if lacking := world.promises.shortage(request, quotas, o.pods):
        world.queue.leave(o.job.uid)
        ended = any(quota.counts_ended_pods for quota in quotas)
        return Offer(reason=names.REASON_QUOTA_EXCEEDED, message=lacking, counts_ended_pods=ended)
    answer = world.queue.ask(request, o.now)
    if not isinstance(answer, Placed):
        return Offer(reason=answer.reason, message=answer.message)
    frozen = rendering.freeze(
        parsed,
        attempt=next_attempt(o.status),
        incarnation=next_incarnation(o.status),
        placed=answer,
        request=request,
        settings=rules,
        ground=ground_of(world.jobs, world.pods, world.nodes, world.queue, answer, rules.profile),
    )
    known.memory.frozen, known.memory.stored = frozen, ""
    known.memory.refusal = ""
    world.queue.reserve(rendering.reservation(frozen), Holder(o.job.uid, rank.value, o.now, rank.spared))
    world.promises.make(request)
    levels = frozen.launch_plan.levels
    return Offer(
        plan_sha256=frozen.sha256,
        message=rendering.note(request, answer),
        placement=PlacementStatus(levels=levels) if levels else None,
    )


def _keep_places(world: Surroundings, o: Observation) -> None:
    """A job that is over, suspended or deleted holds no places and waits for none."""
    promised = o.status.phase in PLANNED and o.status.launched != o.status.attempt
    if not promised and (o.offer is None or not o.offer.plan_sha256) and world.promises.kept(o.job.uid):
        world.lookups.forget_quotas(o.job.namespace)
    if o.status.phase in TERMINAL or o.status.phase is Phase.SUSPENDED or o.job.deleting:
        world.queue.leave(o.job.uid)
        world.queue.release(o.job.uid)


async def _write(world: Surroundings, known: KnownJob, old: TrainingJobStatus, new: TrainingJobStatus) -> None:
    """Writes the status against the version it was decided from; after a conflict the next round decides anew."""
    meta = known.metadata
    patch = merge_patch(as_json(old), as_json(new))
    assert patch, "a decision that changes nothing must not ask for a write"
    try:
        answer = await world.api.patch_status(
            TRAININGJOBS, meta.namespace, meta.name, patch, resource_version=meta.resource_version
        )
    except (Conflict, NotFound):
        await _read_again(world, known)
        return
    world.jobs.put(answer)
    if new.phase is Phase.PENDING:
        world.queue.release(meta.uid)
    elif new.incident and new.incident.trigger is Cause.PREEMPTED:
        world.queue.yields(meta.uid)
    if _only_refreshes(old, new):
        known.memory.progress_at = world.clock()
    world.recorder.wrote(known, old, new)


async def _read_again(world: Surroundings, known: KnownJob) -> None:
    """Reads the job itself, not the cache; a job of that name with another UID is another job."""
    meta = known.metadata
    try:
        answer = await world.api.get(TRAININGJOBS, meta.namespace, meta.name)
    except NotFound:
        world.jobs.drop(meta.uid)
        return
    world.jobs.put(answer)
    if answer["metadata"]["uid"] != meta.uid:
        world.jobs.drop(meta.uid)


async def _act(world: Surroundings, known: KnownJob, o: Observation, decision: Decision) -> float | None:
    """Carries the actions out; returns seconds to wait if the next round must see what came of them."""
    try:
        await carry_out(world.api, known, decision.actions, world.clock)
    except Refused as error:
        known.memory.refusal = str(error)
        # One more round, so that the refusal is told; it is tried again later.
        return None if not o.refusal else REFUSAL_RETRY_SECONDS
    if any(isinstance(action, DeletePod) for action in decision.actions):
        return LOOK_AGAIN_SECONDS
    creates = sum(isinstance(action, CreatePod) for action in decision.actions)
    adopted = creates > 0 and len(known.memory.created) < creates
    return 1.0 if adopted else None


def _is_routine(old: TrainingJobStatus, new: TrainingJobStatus) -> bool:
    """Whether a write would only tell of progress, or count anew what a job waits for: of those there are many."""
    return only_progress(old, new) or (new.phase is Phase.PENDING and _only_refreshes(old, new))


def _only_refreshes(old: TrainingJobStatus, new: TrainingJobStatus) -> bool:
    return (old.phase, old.attempt, old.incident, old.reason) == (new.phase, new.attempt, new.incident, new.reason)
