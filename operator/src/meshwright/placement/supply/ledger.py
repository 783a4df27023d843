"""What every node has left, kept step by step: at any time equal to a count of everything from the start.

A change costs what it touches. Snapshots share what did not change since the last one, so that looking at a cluster of
any size again and again costs next to nothing.
"""

from __future__ import annotations

from collections import Counter

from meshwright.placement.model import Reservation, Snapshot, Verdicts
from meshwright.placement.supply.capacity import PodUse
from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.resources import NOTHING, Resources

_Place = tuple[str, int, str, int]
"""Job UID, incarnation, role, index."""
_MOST_RULES = 256
"""So many kinds of pods are remembered with the nodes that take them."""


class Ledger:
    """The running account of nodes, the pods on them, and the places that gangs have reserved.

    Attributes:
        generation: Grows with every change; whatever was worked out from a snapshot is good for as long as it stays.
        freed: Grows with every change that may make room for somebody.
        idle_generation: Grows when a node or a foreign pod changes: what the cluster would be without gangs.
    """

    def __init__(self) -> None:
        self.generation = self.freed = self.idle_generation = 0
        self._nodes: dict[str, NodeCapacity] = {}
        self._used: dict[str, Resources] = {}
        self._foreign: dict[str, Resources] = {}
        self._free: dict[str, Resources] = {}
        self._idle: dict[str, Resources] = {}
        self._own: dict[str, dict[str, Resources]] = {}
        self._filled: Counter[_Place] = Counter()
        self._reservations: dict[str, Reservation] = {}
        self._snapshot: Snapshot | None = None
        self._lent = False
        self._lent_own: set[str] = set()
        self._touched: dict[str, NodeCapacity | None] = {}
        """Nodes that changed since the last snapshot, as they were then."""

    def node_changed(self, name: str, node: NodeCapacity | None) -> None:
        """A node came, offers something else than before, or went (None)."""
        before = self._nodes.get(name)
        if before == node:
            return
        self._change()
        self.freed += 1
        self.idle_generation += 1
        self._touched.setdefault(name, before)
        if node is None:
            del self._nodes[name], self._free[name], self._idle[name]
        else:
            self._nodes[name] = node
            self._count(name)

    def pod_changed(self, old: PodUse | None, new: PodUse | None) -> None:
        """A pod holds something else of its node than before; None stands for nothing."""
        if old == new or self._only_sits_down(old, new):
            return
        self._change()
        self.freed += old is not None
        for use, sign in ((old, -1), (new, 1)):
            if use is None:
                continue
            self._take(use.node, use.resources * sign, use.job_uid)
            if use.job_uid:
                self._fill(_place(use), sign)

    def reserve(self, reservation: Reservation) -> None:
        """The gang has these places, and no others that it may have had before."""
        self.release(reservation.job_uid)
        self._change()
        self._reservations[reservation.job_uid] = reservation
        self._book(reservation, 1)

    def release(self, job_uid: str) -> bool:
        """The gang holds nothing any more but what its pods occupy; returns whether it had held places."""
        reservation = self._reservations.pop(job_uid, None)
        if reservation is None:
            return False
        self._change()
        self.freed += 1
        self._book(reservation, -1)
        return True

    def release_all(self) -> None:
        """No gang holds any place."""
        for job_uid in tuple(self._reservations):
            self.release(job_uid)

    def held_by(self, job_uid: str) -> Reservation | None:
        """The places that the gang holds."""
        return self._reservations.get(job_uid)

    def holds_anything(self, job_uid: str) -> bool:
        """Whether the gang has places, or pods that occupy some."""
        return job_uid in self._own

    def snapshot(self) -> Snapshot:
        """Everything as it is now. It stays as it is, whatever changes later."""
        if self._snapshot is None or self._touched or not self._lent:
            same_nodes = self._snapshot is not None and not self._touched
            nodes = self._snapshot.nodes if self._snapshot and same_nodes else tuple(self._nodes.values())
            self._snapshot = Snapshot(
                nodes,
                self._free,
                dict(self._own),
                exclusive={uid: r.exclusive for uid, r in self._reservations.items() if r.exclusive},
                idle=self._idle,
                _verdicts=self._verdicts(),
            )
            self._lent, self._lent_own = True, set(self._own)
            self._touched.clear()
        return self._snapshot

    def _verdicts(self) -> dict[NodeRules, Verdicts]:
        """What is known of which nodes take which pods, brought up to date for the nodes that changed."""
        known = self._snapshot._verdicts if self._snapshot else {}
        if not self._touched:
            return known
        if len(self._touched) > len(self._nodes) // 4 or len(known) > _MOST_RULES:
            return {}
        return {rules: self._revised(rules, verdicts) for rules, verdicts in known.items()}

    def _revised(self, rules: NodeRules, verdicts: Verdicts) -> Verdicts:
        takers = [node for node in verdicts.takers if node.name not in self._touched]
        obstacles = Counter(verdicts.obstacles)
        for name, before in self._touched.items():
            if before is not None and (obstacle := rules.obstacle(before)) is not None:
                obstacles[obstacle] -= 1
            now = self._nodes.get(name)
            if now is None:
                continue
            if (obstacle := rules.obstacle(now)) is None:
                takers.append(now)
            else:
                obstacles[obstacle] += 1
        return Verdicts(tuple(sorted(takers, key=lambda node: node.name)), +obstacles)

    def _change(self) -> None:
        self.generation += 1
        if self._lent:
            self._free, self._idle, self._lent = dict(self._free), dict(self._idle), False

    def _only_sits_down(self, old: PodUse | None, new: PodUse | None) -> bool:
        """Whether a pod takes the place that is reserved for it, or leaves it reserved: then nothing changes.

        This is what most changes are, while large gangs start and stop.
        """
        use = new if old is None else old if new is None else None
        reservation = self._reservations.get(use.job_uid) if use and use.job_uid else None
        if use is None or reservation is None or reservation.incarnation != use.incarnation:
            return False
        place = _place(use)
        if self._filled.get(place, 0) != (0 if old is None else 1):
            return False
        if reservation.nodes.get((use.role, use.index)) != use.node or reservation.requests[use.role] != use.resources:
            return False
        self._filled[place] += 1 if old is None else -1
        if not self._filled[place]:
            del self._filled[place]
        return True

    def _fill(self, place: _Place, sign: int) -> None:
        """A pod took its place or left it: what was reserved there counts only while nobody sits there."""
        there = self._filled[place]
        self._filled[place] += sign
        if self._filled[place] <= 0:
            del self._filled[place]
        job_uid, incarnation, role, index = place
        reservation = self._reservations.get(job_uid)
        if reservation is None or reservation.incarnation != incarnation or (there > 0) == (there + sign > 0):
            return
        node = reservation.nodes.get((role, index))
        if node is not None:
            self._take(node, reservation.requests[role] * -sign, job_uid)

    def _book(self, reservation: Reservation, sign: int) -> None:
        for (role, index), node in reservation.nodes.items():
            if (reservation.job_uid, reservation.incarnation, role, index) not in self._filled:
                self._take(node, reservation.requests[role] * sign, reservation.job_uid)

    def _take(self, node: str, amount: Resources, job_uid: str) -> None:
        _add(self._used, node, amount)
        if job_uid:
            mine = self._own.get(job_uid, {})
            if job_uid in self._lent_own:
                mine = dict(mine)
                self._lent_own.discard(job_uid)
            _add(mine, node, amount)
            self._own[job_uid] = mine
            if not mine:
                del self._own[job_uid]
        else:
            _add(self._foreign, node, amount)
            self.idle_generation += 1
        if node in self._nodes:
            self._count(node)

    def _count(self, name: str) -> None:
        allocatable = self._nodes[name].allocatable
        self._free[name] = allocatable - self._used.get(name, NOTHING)
        self._idle[name] = allocatable - self._foreign.get(name, NOTHING)


def _place(use: PodUse) -> _Place:
    return use.job_uid, use.incarnation, use.role, use.index


def _add(amounts: dict[str, Resources], node: str, amount: Resources) -> None:
    """Adds in place; what comes to nothing is forgotten, so that memory follows what there is."""
    total = amounts.get(node, NOTHING) + amount
    if total == NOTHING:
        amounts.pop(node, None)
    else:
        amounts[node] = total
