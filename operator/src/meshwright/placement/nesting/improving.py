"""Small changes that make a placement cheaper: two pods or blocks trade places, or one moves to a free node."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from meshwright.placement.nesting.cost import Cost, Group

_GAIN = 1e-9
"""A change must save this share of the cost, or rounding could make two placements trade places for ever."""
_FEW = 16
"""Pods of a gang of which three may change places at once."""
_SMALL = 32
"""Nodes of a cluster in which every move is looked at."""


@dataclass(frozen=True)
class Together:
    """Pods that a constraint keeps in one domain."""

    units: Mapping[int, tuple[tuple[int, tuple[int, ...]], ...]]
    """By pod: level, and the pods of its unit there."""

    @classmethod
    def of(cls, cost: Cost, held: Sequence[frozenset[str]]) -> Together:
        """The units of a grid of pods.

        Args:
            cost: knows the grid.
            held: by level, the axes that must not be parted there.
        """
        axes = cost.layout.axes
        units: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for level, names in enumerate(held):
            if not names or level == 0:
                continue
            members: dict[tuple[int, ...], list[int]] = {}
            for pod in range(cost.layout.pods):
                members.setdefault(_coordinates(pod, axes_sizes(cost), [a.name in names for a in axes]), []).append(pod)
            for unit in members.values():
                for pod in unit if len(unit) > 1 else ():
                    units.setdefault(pod, []).append((level, tuple(unit)))
        return cls({pod: tuple(mine) for pod, mine in units.items()})

    def kept(self, cost: Cost, assignment: Sequence[int], pods: Sequence[int]) -> bool:
        """Whether the units of these pods are each in one domain."""
        for pod in pods:
            for level, unit in self.units.get(pod, ()):
                row = cost.tree.domains[level]
                if len({row[assignment[other]] for other in unit}) > 1:
                    return False
        return True


def axes_sizes(cost: Cost) -> tuple[int, ...]:
    """Sizes of the grid's axes."""
    return tuple(axis.size for axis in cost.layout.axes)


def _coordinates(pod: int, sizes: Sequence[int], left_out: Sequence[bool]) -> tuple[int, ...]:
    found = []
    for size, skip in zip(reversed(sizes), reversed(left_out), strict=True):
        found.append(0 if skip else pod % size)
        pod //= size
    return tuple(found)


class Improving:
    """Hill climbing from one placement, with a fixed number of looks, so that equal input gives equal output."""

    def __init__(self, cost: Cost, together: Together, rooms: Sequence[int], looks: int) -> None:
        """Prepares.

        Args:
            cost: the prices.
            together: what must not be parted.
            rooms: pods that each node has room for.
            looks: pods to look at a change of, at most, counting each as often as it is looked at.
        """
        self._cost = cost
        self._together = together
        self._rooms = rooms
        self._looks = looks
        self._groups = cost.by_pod()

    def improve(self, assignment: list[int], blocks: Sequence[tuple[int, ...]]) -> list[int]:
        """The cheapest placement found; the given one if none is.

        Args:
            assignment: the node's position for every pod. It is changed in place.
            blocks: sequences of pods that may trade places with others of their length.
        """
        free = list(self._rooms)
        for node in assignment:
            free[node] -= 1
        improved = True
        while improved and self._looks > 0:
            improved = False
            for pods, targets in self._changes(assignment, free, blocks):
                self._looks -= len(pods)
                if self._try(assignment, free, pods, targets):
                    improved = True
                if self._looks <= 0:
                    break
        return assignment

    def _changes(
        self, assignment: Sequence[int], free: Sequence[int], blocks: Sequence[tuple[int, ...]]
    ) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Pods, and the nodes that they would go to."""
        for i, block in enumerate(blocks):
            for other in blocks[i + 1 :]:
                if len(block) == len(other) and not set(block) & set(other):
                    mine = tuple(assignment[pod] for pod in block)
                    theirs = tuple(assignment[pod] for pod in other)
                    if mine != theirs:
                        yield (*block, *other), (*theirs, *mine)
        open_nodes = self._open(assignment, free)
        for block in blocks:
            for node in open_nodes:
                if free[node] >= len(block) and any(assignment[pod] != node for pod in block):
                    yield block, (node,) * len(block)

        if len(assignment) <= _FEW:
            for a, b, c in permutations(range(len(assignment)), 3):
                nodes = assignment[b], assignment[c], assignment[a]
                if a < b and a < c and len(set(nodes)) == 3:
                    yield (a, b, c), nodes
            for a, b in permutations(range(len(assignment)), 2):
                for node in open_nodes:
                    if free[node] > 0 and node != assignment[a] != assignment[b]:
                        yield (a, b), (node, assignment[a])

    def _open(self, assignment: Sequence[int], free: Sequence[int]) -> list[int]:
        """Nodes worth moving to: in a small cluster all with room, else those in use and the roomiest beside them."""
        if len(free) <= _SMALL:
            return [node for node, room in enumerate(free) if room > 0]
        tree, level = self._cost.tree, len(self._cost.tree.levels) - 2
        used = set(assignment)
        roomiest = {
            max(tree.span(level, domain), key=lambda node: (free[node], -node))
            for domain in {tree.domains[level][node] for node in used}
        }
        return sorted(node for node in used | roomiest if free[node] > 0)

    def _try(self, assignment: list[int], free: list[int], pods: tuple[int, ...], targets: tuple[int, ...]) -> bool:
        """Makes the change if it saves something."""
        groups: dict[int, Group] = {id(group): group for pod in pods for group in self._groups.get(pod, ())}
        before = self._cost.of_groups(groups.values(), assignment)
        old = [assignment[pod] for pod in pods]
        for pod, node in zip(pods, targets, strict=True):
            assignment[pod] = node
        after = self._cost.of_groups(groups.values(), assignment)
        if after < before * (1 - _GAIN) and self._together.kept(self._cost, assignment, pods):
            for left, taken in zip(old, targets, strict=True):
                free[left] += 1
                free[taken] -= 1
            return True
        for pod, node in zip(pods, old, strict=True):
            assignment[pod] = node
        return False
