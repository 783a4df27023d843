"""Which running gangs must end so that another fits: whole gangs, as few and as cheap ones as will do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from meshwright.placement.model import GangRequest, Placed, Snapshot
from meshwright.placement.solver import Solver


@dataclass(frozen=True, slots=True)
class Holder:
    """A gang that holds places."""

    job_uid: str
    priority: int
    since: datetime
    """When it was given them."""
    spared: bool = False
    """Whether nobody may take them away, whatever his priority."""


def by_cost(holders: Iterable[Holder]) -> tuple[Holder, ...]:
    """The cheapest to end first: of the lowest priority, and among those the youngest, who loses the least work."""
    return tuple(sorted(holders, key=lambda h: (h.priority, -h.since.timestamp(), h.job_uid)))


def fewest(
    gang: GangRequest, snapshot: Snapshot, candidates: Sequence[Holder], solver: Solver
) -> tuple[tuple[str, ...], Placed] | None:
    """A set of gangs without which the gang fits, and its place then; None if it would not even without all of them.

    No gang of the set can be left out, and the dearest that must end is as cheap as can be.

    Args:
        gang: the gang that needs a place.
        snapshot: what is free; what gangs that are leaving hold may be counted as free already.
        candidates: the gangs that may end, cheapest first.
        solver: finds the place.
    """
    uids = [holder.job_uid for holder in candidates if holder.job_uid in snapshot.own]
    placed = solver.place(gang, snapshot.without(uids))
    if placed is None:
        return None
    enough, too_few = len(uids), -1
    while enough - too_few > 1:
        middle = (enough + too_few) // 2
        found = solver.place(gang, snapshot.without(uids[:middle]))
        if found is None:
            too_few = middle
        else:
            enough, placed = middle, found
    return _spare(gang, snapshot, uids[:enough], placed, solver)


def _spare(
    gang: GangRequest, snapshot: Snapshot, chosen: list[str], placed: Placed, solver: Solver
) -> tuple[tuple[str, ...], Placed]:
    """Leaves out whoever need not end, the dearest first."""
    taken = set(placed.nodes.values())
    in_the_way = [uid for uid in chosen if not taken.isdisjoint(snapshot.own[uid])]
    if len(in_the_way) < len(chosen) and (found := solver.place(gang, snapshot.without(in_the_way))) is not None:
        chosen, placed = in_the_way, found
    for uid in reversed(chosen):
        rest = [other for other in chosen if other != uid]
        found = solver.place(gang, snapshot.without(rest))
        if found is not None:
            chosen, placed = rest, found
    return tuple(chosen), placed
