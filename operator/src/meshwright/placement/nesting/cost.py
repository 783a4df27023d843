"""What a placement costs: bytes that cross each level of the topology, over what the level can carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from itertools import accumulate, product
from operator import ne

from meshwright.placement.nesting.layout import Axis, Layout, Pattern
from meshwright.placement.topology.tree import Tree


@dataclass(frozen=True, slots=True)
class Group:
    """Pods that differ in one axis only, in its order."""

    axis: int
    pods: tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """Prices assignments of pods to nodes of one tree. An assignment is the node's position for every pod."""

    tree: Tree
    layout: Layout
    groups: tuple[Group, ...]
    weights: tuple[float, ...]
    """By level: the price of a byte that crosses it."""

    @classmethod
    def of(cls, tree: Tree, layout: Layout) -> Cost:
        """The groups of a grid of pods, and the tree's prices."""
        weights = tuple(1 / level.bandwidth for level in tree.levels)
        return cls(tree, layout, tuple(_groups(layout.axes)), weights)

    def total(self, assignment: Sequence[int]) -> float:
        """The cost of everything."""
        return self.of_groups(self.groups, assignment)

    def of_groups(self, groups: Iterable[Group], assignment: Sequence[int]) -> float:
        """The cost of some groups."""
        axes, weights, domains = self.layout.axes, self.weights, self.tree.domains
        total = 0.0
        for group in groups:
            axis, nodes = axes[group.axis], [assignment[pod] for pod in group.pods]
            crossed = 0.0
            # Upwards from the nodes; what does not cross a level crosses none above it.
            for level in range(len(weights) - 1, 0, -1):
                row = domains[level]
                count = _crossings(axis.pattern, [row[node] for node in nodes])
                if not count:
                    break
                crossed += count * weights[level]
            total += crossed * axis.traffic
        return total

    def at_least(self, rooms: Sequence[Sequence[int]]) -> float:
        """What no placement can undercut: each group by itself in the domains with the most room.

        Args:
            rooms: by level and domain, the pods that it can hold.
        """
        bound = 0.0
        counts = Counter((group.axis, len(group.pods)) for group in self.groups)
        for level in range(1, len(self.weights)):
            largest = nlargest(max((size for _, size in counts), default=0), rooms[level])
            for (axis, size), count in counts.items():
                crossings = sum(1 for held in accumulate(largest) if held < size)
                bound += count * crossings * self.weights[level] * self.layout.axes[axis].traffic
        return bound

    def crossing(self, assignment: Sequence[int]) -> dict[str, float]:
        """Bytes per step that leave domains of each level, by its name, outermost first."""
        found: dict[str, float] = {}
        for level in range(1, len(self.weights)):
            row = self.tree.domains[level]
            found[self.tree.levels[level].name] = sum(
                self.layout.axes[group.axis].traffic
                * _crossings(self.layout.axes[group.axis].pattern, [row[assignment[pod]] for pod in group.pods])
                for group in self.groups
            )
        return found

    def by_pod(self) -> Mapping[int, tuple[Group, ...]]:
        """The groups that each pod is in."""
        mine: dict[int, list[Group]] = {}
        for group in self.groups:
            for pod in group.pods:
                mine.setdefault(pod, []).append(group)
        return {pod: tuple(groups) for pod, groups in mine.items()}


def _crossings(pattern: Pattern, domains: Sequence[int]) -> int:
    if pattern is Pattern.COLLECTIVE:
        return len(set(domains)) - 1
    return sum(map(ne, domains, domains[1:]))


def _groups(axes: tuple[Axis, ...]) -> Iterator[Group]:
    strides, stride = [0] * len(axes), 1
    for i in range(len(axes) - 1, -1, -1):
        strides[i] = stride
        stride *= axes[i].size
    for i, axis in enumerate(axes):
        if axis.size == 1:
            continue
        others = [range(0, strides[j] * other.size, strides[j]) for j, other in enumerate(axes) if j != i]
        for offsets in product(*others):
            first = sum(offsets)
            yield Group(i, tuple(range(first, first + strides[i] * axis.size, strides[i])))
