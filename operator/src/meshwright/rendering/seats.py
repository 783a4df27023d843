"""Where a placed gang sits, as the launch plan tells it: rank ranges by domain, and what crosses each level."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from meshwright.placement.model import GangRequest, Member, Placed
from meshwright.placement.nesting.seating import Seating
from meshwright.placement.nesting.solver import lost_wishes
from meshwright_api.launch_plan import Group, RolePlan
from meshwright_api.traffic import LevelUse

MOST_BYTES: Final = 48 * 1024
"""What all groups of a plan may take; the plan is mounted in every pod."""
_FRAME: Final = len('{"domain":"","level":"","ranks":""},')


def groups(seating: Seating, roles: Iterable[RolePlan]) -> tuple[Group, ...]:
    """The ranks in each domain of each level, from the outermost level down as far as there is room in a plan."""
    by_name = {role.name: role for role in roles}
    found: list[Group] = []
    room = MOST_BYTES
    for level in range(1, len(seating.tree.levels)):
        name = seating.tree.levels[level].name
        at_level = []
        for domain, members in seating.domains(level):
            path, ranks = seating.tree.path(level, domain), _ranks(members, by_name)
            room -= _FRAME + len(name) + len(path.encode()) + len(ranks)
            if room < 0:
                return tuple(found)
            at_level.append(Group(level=name, domain=path, ranks=ranks))
        found += at_level
    return tuple(found)


def levels(seating: Seating, *, mesh_known: bool) -> tuple[LevelUse, ...]:
    """How many domains of each level are used, and the traffic that leaves them, beside that of first fit."""
    crossing = seating.crossing() if mesh_known else None
    naive = seating.naive_crossing() if mesh_known else None
    return tuple(
        LevelUse(
            level=level.name,
            domains=seating.count(depth),
            crossing_bytes=_whole(crossing, level.name),
            first_fit_bytes=_whole(naive, level.name),
        )
        for depth, level in enumerate(seating.tree.levels)
        if depth
    )


def note(request: GangRequest, placed: Placed) -> str:
    """What a placed gang does not have of what it would have liked; empty if it has everything."""
    if placed.seating is None:
        unheard = request.layout is not None and request.layout.constraints
        return "The operator was told of no topology, so preferred constraints were left out." if unheard else ""
    lost = lost_wishes(placed.seating)
    kept_apart = [f"{' x '.join(sorted(wish.axes))} within {wish.level}" for wish in lost]
    return f"Preferred, but not to be had: {'; '.join(kept_apart)}." if lost else ""


def _whole(amounts: Mapping[str, float] | None, level: str) -> int | None:
    return None if amounts is None else round(amounts[level])


def _ranks(members: Iterable[Member], roles: Mapping[str, RolePlan]) -> str:
    """`0-31,64-95`."""
    return ",".join(f"{first}-{last}" if last > first else str(first) for first, last in _runs(members, roles))


def _runs(members: Iterable[Member], roles: Mapping[str, RolePlan]) -> Iterator[tuple[int, int]]:
    begin = end = -1
    for first, count in sorted(
        (roles[role].first_rank + index * roles[role].processes_per_pod, roles[role].processes_per_pod)
        for role, index in members
    ):
        if first != end + 1 or begin < 0:
            if begin >= 0:
                yield begin, end
            begin = first
        end = first + count - 1
    if begin >= 0:
        yield begin, end
