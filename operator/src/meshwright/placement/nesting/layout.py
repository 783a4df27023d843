"""What a gang wants of the topology: a grid of pods, what its axes send, and what must stay together.

A mesh of ranks, row-major with the innermost axis fastest, becomes a grid of pods: axes inside one pod vanish, an axis
that is wider than a pod keeps its outer part.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from meshwright.placement.errors import InvalidLayout

PODS: Final = "pods"
"""The one axis of a grid about which nothing is known but that its pods talk; as a wish, all axes together."""
_REPLICAS: Final = ("data", PODS)
"""Along these axes stand replicas; one that has no mesh is taken to have one in each pod."""


class Pattern(StrEnum):
    """Who talks to whom along an axis."""

    COLLECTIVE = "Collective"
    """All of a group. Libraries order their rings and trees by topology, so what crosses a level is what joins the
    group's domains there: one less than there are."""
    NEIGHBOURS = "Neighbours"
    """Each with the next, as pipeline stages do: every pair that a level parts crosses it."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis of a mesh of ranks or of a grid of pods."""

    name: str
    size: int
    traffic: float = 1.0
    """Bytes that one member sends along the axis in a step; only ratios matter."""
    pattern: Pattern = Pattern.COLLECTIVE


@dataclass(frozen=True, slots=True)
class Within:
    """Keeps pods that differ only in these axes within one domain of a level."""

    axes: frozenset[str]
    level: str
    """Name of the level, or its label key."""
    required: bool = False
    """Wait until it can be had; else it is had where it can."""


@dataclass(frozen=True)
class Layout:
    """A grid of equal pods, outermost axis first. Pod indices are row-major in it."""

    axes: tuple[Axis, ...]
    constraints: tuple[Within, ...] = ()
    exclusive: str = ""
    """Level whose domains the gang shares with no other gang."""
    spread: str = ""
    """Level over whose domains replicas are dealt out: each whole in one, and none holds more than it must."""
    balanced: bool = False
    """At every level every domain that is used holds the same number of pods."""

    def __post_init__(self) -> None:
        """Checks the axes.

        Raises:
            InvalidLayout: an axis is named twice or has no positive size.
        """
        names = [axis.name for axis in self.axes]
        if len(set(names)) < len(names):
            raise InvalidLayout(f"axes {', '.join(names)}: each needs a name of its own")
        if any(axis.size < 1 for axis in self.axes):
            raise InvalidLayout("sizes of axes must be 1 or more")

    @property
    def pods(self) -> int:
        """Pods of the grid."""
        return math.prod(axis.size for axis in self.axes)

    @property
    def demands(self) -> bool:
        """Whether the gang waits if it cannot have what it wants."""
        required = any(constraint.required for constraint in self.constraints)
        return required or bool(self.exclusive or self.spread or self.balanced)

    @property
    def replica(self) -> Within | None:
        """What spreading replicas keeps together: each of them, whole. None if there is nothing to spread."""
        if not self.spread or all(axis.size == 1 for axis in self.axes if axis.name in _REPLICAS):
            return None
        return Within(frozenset(a.name for a in self.axes if a.name not in _REPLICAS), self.spread, required=True)

    @property
    def required(self) -> tuple[Within, ...]:
        """The constraints that must hold."""
        replica = () if self.replica is None else (self.replica,)
        return (*(constraint for constraint in self.constraints if constraint.required), *replica)

    @classmethod
    def of_mesh(cls, mesh: Iterable[Axis], processes_per_pod: int, constraints: Iterable[Within] = ()) -> Layout:
        """The grid of pods under a mesh of ranks, outermost axis first.

        Where pods cut across the axes unevenly, so that no grid of pods exists, pods are one axis that carries all
        traffic, and every constraint speaks of all of it: more than was asked, never less.
        """
        axes = tuple(mesh)
        known = {axis.name for axis in axes}
        constraints = tuple(c for c in constraints if c.axes <= known)
        outer: list[Axis] = []
        room = processes_per_pod
        for axis in reversed(axes):
            inside = math.gcd(room, axis.size)
            if inside < min(room, axis.size):
                return cls._uneven(axes, processes_per_pod, constraints)
            # Each pod holds a part of so many groups along the axis.
            groups = processes_per_pod // inside
            outer.append(Axis(axis.name, axis.size // inside, axis.traffic * groups, axis.pattern))
            room //= inside
        if room > 1:
            return cls._uneven(axes, processes_per_pod, constraints)
        return cls(tuple(reversed(outer)), constraints)

    @classmethod
    def _uneven(cls, axes: tuple[Axis, ...], processes_per_pod: int, constraints: tuple[Within, ...]) -> Layout:
        pods = -(-math.prod(axis.size for axis in axes) // processes_per_pod)
        traffic = sum(axis.traffic for axis in axes) * processes_per_pod
        everything = frozenset({PODS})
        return cls(
            (Axis(PODS, pods, traffic, Pattern.NEIGHBOURS),),
            tuple(Within(everything, c.level, c.required) for c in constraints),
        )


def compact(pods: int, constraints: Iterable[Within] = ()) -> Layout:
    """Pods about which nothing is known but that they talk: the closer, the better. The axis is called `pods`."""
    return Layout((Axis(PODS, pods),), tuple(constraints))
