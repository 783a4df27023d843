"""`GangQueue`: the one place where gangs are admitted, over one account, so that two never get half of one room."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.placement.model import GangRequest, Placed, Refused, Reservation
from meshwright.placement.queueing.preemption import Holder
from meshwright.placement.queueing.queue import Circumstances, Judgement, Shape, judge
from meshwright.placement.reasons import yielded
from meshwright.placement.solver import FirstFit, Solver
from meshwright.placement.supply.capacity import PodUse
from meshwright.placement.supply.ledger import Ledger
from meshwright.placement.supply.nodes import NodeCapacity

PASSING: Final = timedelta(hours=1)
"""For how long after its job was made a waiting gang may be passed by others."""

_MOST_SHAPES: Final = 4096
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_STALE: Final = timedelta(seconds=5)
"""For how long a gang that waits is given the answer of before, while nothing was given back."""


class GangQueue:
    """Who waits, and who holds which places.

    A reservation lives from the offer until the job ends, is suspended, or goes back to the queue. It is durable as the
    committed plan; what is kept here is rebuilt from those when a process begins to lead.

    The queue is looked through once for each change of who waits or of what is free, not once for each that asks.

    Attributes:
        on_room: Called when somebody may find room who did not before, or must make room; `turns` tells who.
    """

    def __init__(
        self, pods: PodCache, nodes: NodeCache, solver: Solver | None = None, passing: timedelta = PASSING
    ) -> None:
        self.on_room: Callable[[], None] = lambda: None
        self._solver = solver or FirstFit()
        self._passing = passing
        self._ledger = Ledger()
        self._waiting: dict[str, GangRequest] = {}
        self._holders: dict[str, Holder] = {}
        self._leaving: set[str] = set()
        self._judgement: Judgement | None = None
        self._judged = (-1, -1)
        self._judged_at = datetime.min.replace(tzinfo=UTC)
        self._kept: Mapping[str, frozenset[str]] = {}
        self._chosen: Mapping[str, str] = {}
        self._fits_alone: dict[Shape, bool] = {}
        self._idle_generation = -1
        for node in nodes.capacities():
            self._ledger.node_changed(node.name, node)
        for use in pods.usage():
            self._ledger.pod_changed(None, use)
        nodes.on_offer = self._node_changed
        pods.on_use = self._pod_changed

    def ask(self, request: GangRequest, now: datetime) -> Placed | Refused:
        """Queues the gang if it does not wait yet, and answers whether it is its turn and where.

        The caller either commits the place, with `reserve`, before anything else is awaited, or asks again later.
        """
        uid = request.job_uid
        known = self._waiting.get(uid)
        self._waiting[uid] = request
        if known != request:
            self._joined(request, new=known is None)
        judgement = self._look(now)
        if uid in judgement.placed:
            judgement = self._look(now, exact=True)
        if judgement.yields:
            self.on_room()  # Those who must make room do not know yet.
        return yielded() if uid in judgement.yields else judgement.verdict(uid)

    def reserve(self, reservation: Reservation, holder: Holder | None = None) -> None:
        """The gang has its places; it waits no longer. Without `holder` it stands as it did before."""
        uid = reservation.job_uid
        expected = self._expected(reservation)
        self._ledger.reserve(reservation)
        self._holders[uid] = holder or self._holders.get(uid) or Holder(uid, 0, _EPOCH)
        self._waiting.pop(uid, None)
        if expected and self._judgement and len(self._judgement.placed) > 1:
            # The others were judged with just this taken away.
            del self._judgement.placed[uid]
            self._judged = self._ledger.generation, self._ledger.freed
        else:
            self._judgement = None

    def held_by(self, job_uid: str) -> Reservation | None:
        """The places that the gang holds."""
        return self._ledger.held_by(job_uid)

    def leave(self, job_uid: str) -> None:
        """The job waits no longer."""
        if self._waiting.pop(job_uid, None):
            self._room()

    def release(self, job_uid: str) -> None:
        """The job holds no places any more."""
        self._holders.pop(job_uid, None)
        self._leaving.discard(job_uid)
        if self._ledger.release(job_uid):
            self._room()

    def must_yield(self, job_uid: str, now: datetime) -> bool:
        """Whether the gang must give its places back to one of higher priority.

        Every pass of a gang that runs asks this, so only those who were chosen at the last look cost another one.
        """
        chosen = bool(self._waiting) and job_uid in self._holders and job_uid in self._chosen
        return chosen and job_uid in self._look(now).yields

    def yields(self, job_uid: str) -> None:
        """The gang has been told to give its places back: others need not for as long as these will do."""
        if job_uid in self._holders and job_uid not in self._leaving:
            self._leaving.add(job_uid)
            self._judgement = None

    def turns(self, now: datetime) -> tuple[str, ...]:
        """Jobs that must act now: those that may start, and those that must give their places back."""
        if not self._waiting:
            return ()
        judgement = self._look(now)
        return (*judgement.yields, *judgement.placed)

    def waiting(self) -> tuple[str, ...]:
        """UIDs of the gangs that wait."""
        return tuple(self._waiting)

    def reconsider(self) -> None:
        """Places are sought by other rules now."""
        self._fits_alone = {}
        self._room()

    def clear(self) -> None:
        """Forgets everything: leadership was lost, and others decide now."""
        self._waiting.clear()
        self._holders.clear()
        self._leaving.clear()
        self._kept = {}
        self._chosen = {}
        self._judgement = None
        self._ledger.release_all()

    def _joined(self, request: GangRequest, *, new: bool) -> None:
        """Somebody waits, or asks for something else: who comes last changes nobody's answer."""
        current = self._judged == (self._ledger.generation, self._ledger.freed)
        if new and current and self._judgement and self._judgement.follows(request):
            self._judgement.consider(request)
        else:
            self._judgement = None

    def _look(self, now: datetime, *, exact: bool = False) -> Judgement:
        """The queue as it was last looked through, if that is still true; exactly, or at least for those who wait.

        As long as nothing is given back nobody who waited finds room, though the counts that he is told may be old.
        """
        judgement, at = self._judgement, (self._ledger.generation, self._ledger.freed)
        if judgement is not None:
            waits_still = self._judged[1] == at[1] and now - self._judged_at < _STALE
            if self._judged == at or (waits_still and not exact):
                return judgement
        if self._idle_generation != self._ledger.idle_generation or len(self._fits_alone) > _MOST_SHAPES:
            self._idle_generation, self._fits_alone = self._ledger.idle_generation, {}
        given = Circumstances(now, self._passing, self._holders, self._leaving, self._kept, self._fits_alone)
        judgement = judge(self._waiting.values(), self._ledger.snapshot(), self._solver, given)
        self._judgement, self._judged, self._judged_at, self._kept = judgement, at, now, judgement.kept
        self._chosen = judgement.yields
        return judgement

    def _expected(self, reservation: Reservation) -> bool:
        """Whether the gang takes just what it was offered, and had nothing before."""
        uid, judgement = reservation.job_uid, self._judgement
        current = self._judged == (self._ledger.generation, self._ledger.freed)
        if judgement is None or not current or uid not in judgement.placed or self._ledger.holds_anything(uid):
            return False
        return judgement.placed[uid].nodes == reservation.nodes

    def _node_changed(self, name: str, node: NodeCapacity | None) -> None:
        self._ledger.node_changed(name, node)
        self._room()

    def _pod_changed(self, old: PodUse | None, new: PodUse | None) -> None:
        freed = self._ledger.freed
        self._ledger.pod_changed(old, new)
        if freed != self._ledger.freed:
            self._room()

    def _room(self) -> None:
        self._judgement = None
        if self._waiting:
            self.on_room()
