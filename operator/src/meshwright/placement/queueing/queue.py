"""The gang queue: who starts next, given what is free.

Gangs that are being restarted come first, then by priority, then by age. A gang starts whole or waits whole, and what
one is given the next has no more, so two gangs that fit alone but not together never get half each.

Who may pass a gang that waits, and for how long, is said in `docs/queue.md`: the first that waits keeps one place, and
whoever has waited for longer than `Circumstances.passing` keeps every node that it could use. A gang that would not fit
even if all other gangs were gone (a wrong selector, nodes that broke, foreign pods) keeps nothing: it does not wait for
its turn. Room for a gang that may preempt is made last: where nothing else will do, whole gangs of lower priority end.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from meshwright.placement.model import GangRequest, Placed, Refused, RoleRequest, Snapshot
from meshwright.placement.nesting.layout import Layout
from meshwright.placement.queueing.preemption import Holder, by_cost, fewest
from meshwright.placement.reasons import ahead_of, makes_room, turn
from meshwright.placement.solver import FirstFit, Solver
from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.resources import Resources

# As long as nothing is given away, gangs of one shape get one answer: a thousand like jobs cost one look.
Shape = tuple[tuple[tuple[int, Resources, NodeRules, str, str], ...], Layout | None, str]

_Kind = tuple[Resources, NodeRules]
_MANY: Final = 1_000_000
_END_OF_TIME: Final = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Circumstances:
    """What the queue must know beside the gangs that wait and what is free."""

    now: datetime = _END_OF_TIME
    passing: timedelta = timedelta(0)
    """For how long after its job was made a waiting gang may be passed by others."""
    holders: Mapping[str, Holder] = field(default_factory=dict)
    """By job UID: the gangs that hold places."""
    leaving: Collection[str] = ()
    """Of those, the ones that have been told to give their places back and are about to."""
    kept: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """By job UID: the place that a gang kept when the queue was last looked through."""
    fits_alone: dict[Shape, bool] = field(default_factory=dict)
    """Which gangs would fit if all others were gone: filled in, and good as long as nodes and foreign pods stay."""


@dataclass
class _Look:
    """What was found out about gangs of one shape that must wait."""

    snapshot: Snapshot
    could: bool
    """Whether it would fit if all gangs were gone: by count of nodes, or exactly if that was needed."""
    refused: Refused | None = None


@dataclass(frozen=True, slots=True)
class _Wait:
    gang: GangRequest
    look: _Look
    ahead: int
    victims: int


class Judgement:
    """One look through the queue: who may start where, and why the others wait.

    Attributes:
        placed: By job UID: the places of those who may start.
        yields: By job UID of a gang that must give its places back: the gang that needs them.
        kept: By job UID: the one place that a waiting gang keeps from those behind it, if it keeps one.
    """

    def __init__(self, snapshot: Snapshot, solver: Solver | None = None, given: Circumstances | None = None) -> None:
        self.placed: dict[str, Placed] = {}
        self.yields: dict[str, str] = {}
        self.kept: dict[str, frozenset[str]] = {}
        self._solver = solver or FirstFit()
        self._given = given or Circumstances()
        self._snapshot = snapshot
        self._empty = snapshot.without_gangs()
        # Pods of a gang that holds no place any more are stopping.
        self._leaving = {*self._given.leaving, *(uid for uid in snapshot.own if uid not in self._given.holders)}
        self._waits: dict[str, _Wait] = {}
        self._looks: dict[Shape, _Look] = {}
        self._room: dict[_Kind, int] = {}
        self._most_room: dict[_Kind, int] = {}
        self._unkept_room: dict[int, dict[_Kind, int]] = {}
        """By identity of what is free, which lives as long as this does."""
        self._usable_nodes: dict[_Kind, frozenset[str]] = {}
        self._hopeless: set[tuple[Shape, int]] = set()
        self._ahead = 0
        self._last: Turn | None = None

    def __contains__(self, job_uid: str) -> bool:
        return job_uid in self.placed or job_uid in self._waits

    def follows(self, gang: GangRequest) -> bool:
        """Whether the gang comes behind all that were considered, so that nobody's answer changes because of it."""
        return self._last is None or self._last < order(gang)

    def consider(self, gang: GangRequest) -> None:
        """Judges the next gang; they must come in order."""
        assert self.follows(gang), "gangs are judged in their order"
        self._last, shape = order(gang), _shape(gang)
        look = self._looks.get(shape)
        if look is None:
            placed = self._solver.place(gang, self._snapshot) if self._has_room(gang) else None
            if placed is not None:
                self.placed[gang.job_uid] = placed
                self._becomes(self._snapshot.with_placed(gang, placed))
                return
            look = self._looks[shape] = _Look(self._snapshot, self._could(gang))
        self._wait(gang, shape, look)

    def verdict(self, job_uid: str) -> Placed | Refused:
        """The answer for a gang that was considered. Why it waits is worked out only when somebody asks."""
        placed = self.placed.get(job_uid)
        return placed if placed is not None else self._explain(self._waits[job_uid])

    def _becomes(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._looks.clear()
        self._room.clear()

    def _has_room(self, gang: GangRequest) -> bool:
        """Whether each role alone would find room: a quick no for most gangs of a long queue."""
        if gang.job_uid in self._snapshot.own:
            return True  # What it has counts as free for it, and for nobody else.
        return all(_room(kind, self._snapshot, self._room) >= kind.replicas for kind in gang.roles)

    def _would_fit(self, gang: GangRequest, unkept: Snapshot) -> bool:
        """Whether the gang would have a place if no nodes were kept for others."""
        known = self._unkept_room.setdefault(id(unkept.free), {})
        if gang.job_uid not in unkept.own and any(_room(r, unkept, known) < r.replicas for r in gang.roles):
            return False
        return self._solver.place(gang, unkept) is not None

    def _could(self, gang: GangRequest) -> bool:
        """Whether each role alone would find room if all gangs were gone."""
        return all(_room(kind, self._empty, self._most_room) >= kind.replicas for kind in gang.roles)

    def _usable(self, gang: GangRequest) -> frozenset[str]:
        """Nodes that could take a pod of the gang if every gang were gone."""
        found = frozenset[str]()
        for role in gang.roles:
            key = role.resources, role.rules
            if role.replicas and key not in self._usable_nodes:
                takers = self._empty.takers(role.rules)
                fit = (node.name for node in takers if role.resources.fits(self._empty.free[node.name]))
                self._usable_nodes[key] = frozenset(fit)
            if role.replicas:
                found |= self._usable_nodes[key]
        return found

    def _wait(self, gang: GangRequest, shape: Shape, look: _Look) -> None:
        """The gang must wait: what it keeps from those behind it, and who must make room for it."""
        late = self._given.now - gang.created >= self._given.passing
        first = not self._ahead
        victims, keeps = 0, frozenset[str]()
        usable = self._usable(gang) if late and look.could else frozenset[str]()
        if look.could and (first or gang.preempts or not usable <= self._snapshot.held):
            look.could = self._fits_alone(gang, shape)
        if look.could and gang.preempts:
            victims, keeps = self._make_room(gang, shape)
        if look.could and first and not keeps and not late:
            keeps = self._first_place(gang)
        if keeps:
            self.kept[gang.job_uid] = keeps
        if look.could:
            keeps |= usable
        self._waits[gang.job_uid] = _Wait(gang, look, self._ahead, victims)
        self._ahead += look.could
        if not keeps <= self._snapshot.held:
            self._becomes(self._snapshot.holding(self._snapshot.held | keeps))

    def _fits_alone(self, gang: GangRequest, shape: Shape) -> bool:
        known = self._given.fits_alone
        if shape not in known:
            known[shape] = self._solver.place(gang, self._empty) is not None
        return known[shape]

    def _first_place(self, gang: GangRequest) -> frozenset[str]:
        """The place that the first of the queue waits for: as before, if that still does, else with few to wait for."""
        before = self._given.kept.get(gang.job_uid)
        if before:
            elsewhere = frozenset(self._empty.free) - before
            if self._solver.place(gang, self._empty.holding(elsewhere)) is not None:
                return before
        found = self._fewest(gang, self._given.holders.values())
        return frozenset(found[1].nodes.values()) if found else frozenset()

    def _make_room(self, gang: GangRequest, shape: Shape) -> tuple[int, frozenset[str]]:
        """Who must end for this gang, as a count, and the place that it will have."""
        if (shape, gang.priority) in self._hopeless:
            return 0, frozenset()
        found = self._fewest(
            gang, (h for h in self._given.holders.values() if h.priority < gang.priority and not h.spared)
        )
        if found is None:
            self._hopeless.add((shape, gang.priority))
            return 0, frozenset()
        self.yields.update(dict.fromkeys(found[0], gang.job_uid))
        return len(found[0]), frozenset(found[1].nodes.values())

    def _fewest(self, gang: GangRequest, holders: Iterable[Holder]) -> tuple[tuple[str, ...], Placed] | None:
        """Nobody more is needed as long as those who leave anyway, or have been told to, make room enough."""
        gone = self._leaving | self.yields.keys()
        candidates = [h for h in holders if h.job_uid not in gone and h.job_uid != gang.job_uid]
        return fewest(gang, self._snapshot.without(gone - {gang.job_uid}), by_cost(candidates), self._solver)

    def _explain(self, wait: _Wait) -> Refused:
        gang, look = wait.gang, wait.look
        if look.refused is None:
            kept_from_it = bool(look.snapshot.held) and self._would_fit(gang, look.snapshot.holding(frozenset()))
            look.refused = turn(wait.ahead) if kept_from_it else self._solver.why_not(gang, look.snapshot)
        if wait.victims:
            return makes_room(look.refused, wait.victims)
        return ahead_of(look.refused, wait.ahead)


def judge(
    waiting: Iterable[GangRequest],
    snapshot: Snapshot,
    solver: Solver | None = None,
    given: Circumstances | None = None,
) -> Judgement:
    """Judges all the gangs that wait, given in any order.

    Args:
        waiting: the gangs.
        snapshot: what is free; reservations of gangs that hold places already are part of it.
        solver: finds the place of one gang; first fit unless given.
        given: what else there is to know.
    """
    judgement = Judgement(snapshot, solver, given)
    for gang in sorted(waiting, key=order):
        judgement.consider(gang)
    return judgement


Turn = tuple[bool, int, datetime, str]


def order(gang: GangRequest) -> Turn:
    """The place in the queue: gangs that are being restarted, then by priority, then by age."""
    return not gang.prefer, -gang.priority, gang.created, gang.job_uid


def _shape(gang: GangRequest) -> Shape:
    # A gang that already has places, or nodes to avoid, is like no other.
    alone = gang.job_uid if gang.prefer or gang.avoid else ""
    roles = tuple((role.replicas, role.resources, role.rules, role.near, role.spread) for role in gang.roles)
    return roles, gang.layout, alone


def _room(role: RoleRequest, snapshot: Snapshot, known: dict[_Kind, int]) -> int:
    """Pods of this kind that there is room for, on nodes that are not kept for others."""
    key = role.resources, role.rules
    if key not in known:
        known[key] = sum(
            role.resources.times_in(snapshot.free[node.name], _MANY)
            for node in snapshot.takers(role.rules)
            if node.name not in snapshot.held
        )
    return known[key]
