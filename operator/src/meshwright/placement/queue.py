"""The gang queue: who starts next, given what is free.

Gangs that are being restarted come first, then by priority, then by age. A gang starts whole or waits whole, and what
one is given the next has no more, so two gangs that fit alone but not together never get half each.

A gang that must wait keeps every node that it could use: those behind it may start on other nodes only. So a large gang
is not starved by small ones that slip past, while jobs for other hardware go on. The price is that nodes may stand idle
until the large gang fits; without knowing how long jobs run there is no way to fill them that cannot delay it. A gang
that would not fit even if all other gangs were gone (a wrong selector, nodes that broke, foreign pods) keeps nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from meshwright.placement.eligibility import NodeRules
from meshwright.placement.layout import Layout
from meshwright.placement.model import GangRequest, Placed, Refused, Snapshot
from meshwright.placement.reasons import turn
from meshwright.placement.resources import Resources
from meshwright.placement.solver import FirstFit, Solver


def admit(
    waiting: Iterable[GangRequest], snapshot: Snapshot, solver: Solver | None = None
) -> dict[str, Placed | Refused]:
    """The verdict on every waiting gang, by job UID.

    Args:
        waiting: the gangs, in any order.
        snapshot: what is free; reservations of gangs that hold places already are part of it.
        solver: finds the place of one gang; first fit unless given.
    """
    solver = solver or FirstFit()
    empty = snapshot.without_gangs()
    verdicts: dict[str, Placed | Refused] = {}
    refusals: dict[_Shape, _Refusal] = {}
    ahead = 0
    for gang in sorted(waiting, key=_turn):
        refusal = refusals.get(_shape(gang))
        if refusal is None:
            placed = solver.place(gang, snapshot)
            if placed is not None:
                verdicts[gang.job_uid] = placed
                snapshot = snapshot.with_placed(gang, placed)
                refusals.clear()
                continue
            refusal = _look_closer(gang, snapshot, empty, solver)
            if not refusal.keeps <= snapshot.held:
                snapshot = snapshot.holding(snapshot.held | refusal.keeps)
                refusals.clear()
            refusals[_shape(gang)] = refusal
        verdicts[gang.job_uid] = refusal.verdict or turn(ahead)
        ahead += bool(refusal.keeps)
    return verdicts


# As long as nothing is given away, gangs of one shape get one answer: a thousand like jobs cost one look.
_Shape = tuple[tuple[tuple[int, Resources, NodeRules, str, str], ...], Layout | None, str]


@dataclass(frozen=True, slots=True)
class _Refusal:
    verdict: Refused | None
    """None if it would fit, were no nodes kept for those ahead."""
    keeps: frozenset[str]
    """Nodes that those behind may not use."""


def _look_closer(gang: GangRequest, snapshot: Snapshot, empty: Snapshot, solver: Solver) -> _Refusal:
    held_back = bool(snapshot.held) and solver.place(gang, snapshot.holding(frozenset())) is not None
    ever = held_back or solver.place(gang, empty) is not None
    verdict = None if held_back else solver.why_not(gang, snapshot)
    return _Refusal(verdict, _usable(gang, empty) if ever else frozenset())


def _turn(gang: GangRequest) -> tuple[bool, int, datetime, str]:
    return not gang.prefer, -gang.priority, gang.created, gang.job_uid


def _shape(gang: GangRequest) -> _Shape:
    # A gang that already has places, or nodes to avoid, is like no other.
    alone = gang.job_uid if gang.prefer or gang.avoid else ""
    roles = tuple((role.replicas, role.resources, role.rules, role.near, role.spread) for role in gang.roles)
    return roles, gang.layout, alone


def _usable(gang: GangRequest, empty: Snapshot) -> frozenset[str]:
    """Nodes that could take a pod of the gang if every gang were gone."""
    return frozenset(
        node.name
        for role in gang.roles
        for node in empty.takers(role.rules)
        if role.replicas and role.resources.fits(empty.free[node.name])
    )
