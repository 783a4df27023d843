"""`GangQueue`: the one place where gangs are admitted, over one snapshot, so that two never get half of one room."""

from __future__ import annotations

from collections.abc import Callable

from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.placement.capacity import snapshot
from meshwright.placement.model import GangRequest, Placed, Refused, Reservation
from meshwright.placement.queue import admit
from meshwright.placement.solver import FirstFit, Solver


class GangQueue:
    """Who waits, and who holds which places.

    A reservation lives from the offer until the job ends, is suspended, or goes back to the queue. It is durable as the
    committed plan; what is kept here is rebuilt from those when a process begins to lead.

    Attributes:
        on_turn: Called when a gang stops waiting: it may be another's turn.
    """

    def __init__(self, pods: PodCache, nodes: NodeCache, solver: Solver | None = None) -> None:
        self._pods = pods
        self._nodes = nodes
        self._solver = solver or FirstFit()
        self.on_turn: Callable[[], None] = lambda: None
        self._waiting: dict[str, GangRequest] = {}
        self._reservations: dict[str, Reservation] = {}

    def ask(self, request: GangRequest) -> Placed | Refused:
        """Queues the gang if it does not wait yet, and answers whether it is its turn and where.

        The caller either commits the place, with `reserve`, before anything else is awaited, or asks again later.
        """
        self._waiting[request.job_uid] = request
        room = snapshot(self._nodes.capacities(), self._pods.usage(), self._reservations.values())
        return admit(self._waiting.values(), room, self._solver)[request.job_uid]

    def reserve(self, reservation: Reservation) -> None:
        """The gang has its places; it waits no longer."""
        self._reservations[reservation.job_uid] = reservation
        self.leave(reservation.job_uid)

    def held_by(self, job_uid: str) -> Reservation | None:
        """The places that the gang holds."""
        return self._reservations.get(job_uid)

    def leave(self, job_uid: str) -> None:
        """The job waits no longer."""
        if self._waiting.pop(job_uid, None):
            self.on_turn()

    def release(self, job_uid: str) -> bool:
        """The job holds no places any more; returns whether it had held some."""
        return self._reservations.pop(job_uid, None) is not None

    def waiting(self) -> tuple[str, ...]:
        """UIDs of the gangs that wait."""
        return tuple(self._waiting)

    def clear(self) -> None:
        """Forgets everything: leadership was lost, and others decide now."""
        self._waiting.clear()
        self._reservations.clear()
