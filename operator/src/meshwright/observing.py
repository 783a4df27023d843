"""The first third of a pass: everything that its decision may depend on, gathered into one value."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.jobs import KnownJob, Memory, Reading
from meshwright.lifecycle.model import Identity, Job, Observation, Pod
from meshwright.lifecycle.policy import readable_job
from meshwright.settings import Settings
from meshwright_api import names
from meshwright_api.errors import InvalidJob
from meshwright_api.job import parse_job
from meshwright_api.status import TrainingJobStatus

EXPECTATION: Final = timedelta(seconds=30)
"""For how long our own writes are believed although the cache does not show them."""


def read_job(known: KnownJob) -> Reading:
    """What is known of the job, read once for each of its states."""
    if known.reading is None:
        known.reading = _read(known)
    return known.reading


def _read(known: KnownJob) -> Reading:
    try:
        parsed = parse_job(known.raw)
    except InvalidJob as error:
        meta = known.metadata
        job = Job(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            generation=meta.generation,
            resource_version=meta.resource_version,
            policy=None,
            problem=str(error),
            deleting=meta.deletion_timestamp is not None,
            status_readable=not any(problem.field.startswith("status") for problem in error.problems),
            holds_domains=names.FINALIZER in meta.finalizers,
        )
        return job, None, error.status
    return readable_job(parsed), parsed, parsed.status


def observe(
    known: KnownJob,
    job: Job,
    status: TrainingJobStatus,
    pods: PodCache,
    nodes: NodeCache,
    settings: Settings,
    now: datetime,
) -> Observation:
    """What the caches and this process's memory say of the job now; the plan and the offer are added later."""
    memory = known.memory
    vanished = pods.vanished(job.uid)
    gang = believed_pods(pods.gang(job.uid), vanished, memory, now)
    culprits = {incident.culprit.node for incident in status.incidents[-1:]}
    culprits |= {status.incident.evidence.node} if status.incident else set()
    lost = nodes.lost({pod.node for pod in gang} | culprits, now, settings.node_lost_seconds)
    _note_disturbance(memory, (pod for pod in gang if pod.node not in lost), status.incarnation, now)
    memory.progress_at = memory.progress_at or now
    progress_due = (now - memory.progress_at).total_seconds() >= settings.progress_seconds
    return Observation(
        now=now,
        job=job,
        status=status,
        pods=gang,
        vanished=vanished,
        lost_nodes=lost,
        plan_stored=memory.stored,
        plan_in_hand=memory.frozen.sha256 if memory.frozen else "",
        undisturbed_since=memory.undisturbed_since,
        refusal=memory.refusal,
        progress_due=progress_due,
    )


def believed_pods(
    cached: tuple[Pod, ...], vanished: frozenset[Identity], memory: Memory, now: datetime
) -> tuple[Pod, ...]:
    """The cached pods, with our own latest writes that the cache may not show yet."""
    shown = {pod.uid for pod in cached}
    for uid, (pod, when) in tuple(memory.created.items()):
        if uid in shown or pod.identity in vanished or now - when > EXPECTATION:
            del memory.created[uid]
    for uid, when in tuple(memory.deleted.items()):
        if now - when > EXPECTATION:
            del memory.deleted[uid]
    gang = (*cached, *(pod for pod, _ in memory.created.values()))
    if not memory.deleted:
        return gang
    return tuple(
        replace(pod, stop_requested_at=memory.deleted[pod.uid])
        if pod.stop_requested_at is None and pod.uid in memory.deleted
        else pod
        for pod in gang
    )


def _note_disturbance(memory: Memory, gang: Iterable[Pod], incarnation: int, now: datetime) -> None:
    """Whether older pods still hold places. Those on lost nodes, which may do so for ever, hold none that we want."""
    if any(pod.identity.incarnation < incarnation and not pod.over for pod in gang):
        memory.undisturbed_since = None
    elif memory.undisturbed_since is None:
        memory.undisturbed_since = now
