"""What a process that begins to lead must know before it may admit anybody: who holds which places."""

from __future__ import annotations

from meshwright.acting import load_plan
from meshwright.jobs import KnownJob
from meshwright.lifecycle.phases import TERMINAL
from meshwright.observing import read_job
from meshwright.placement.queueing.preemption import Holder
from meshwright.reconcile import Surroundings
from meshwright.rendering import gang as rendering
from meshwright_api.status import Cause


async def restore_reservation(world: Surroundings, known: KnownJob) -> None:
    """Reserves the places of the job's committed plan.

    Only a plan whose hash stands in the status reserves anything: a forged one reserves nothing. A plan that was
    committed but never stored has no pods, and is replaced by the job's next pass.
    """
    _, parsed, status = read_job(known)
    if not status.plan_sha256 or status.phase in TERMINAL:
        return
    frozen = await load_plan(world.api, known, status.incarnation, status.plan_sha256)
    if frozen is None:
        return
    rank = await world.lookups.rank(parsed.spec.queue.priority_class_name if parsed else None)
    since = status.admitted_time or status.start_time or world.clock()
    known.memory.frozen, known.memory.stored = frozen, frozen.sha256
    world.queue.reserve(rendering.reservation(frozen), Holder(known.metadata.uid, rank.value, since, rank.spared))
    if status.incident and status.incident.trigger is Cause.PREEMPTED:
        world.queue.yields(known.metadata.uid)
