"""The cluster's network as a tree: which nodes share a switch, a rack, an NVLink domain.

A topology is an ordered list of node label keys, farthest first. A domain is its whole path: two leaves with one name
under two spines are two domains, and a host name may equal a rack's. A node that lacks one of the labels has no place
in the tree and takes no pod that is placed by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from meshwright.placement.errors import InvalidTopology
from meshwright.placement.supply.nodes import NodeCapacity

HOSTNAME: Final = "kubernetes.io/hostname"
NODE: Final = "node"
"""Name of the lowest level, in which every node is a domain of its own."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the tree."""

    name: str
    """What constraints and plans call it: `spine`, `leaf`, `nvlink`."""
    key: str
    """The node label whose value names the domain."""
    bandwidth: float = 1.0
    """What one node has for traffic that leaves its domain of this level, in GB/s; only ratios matter."""


@dataclass(frozen=True)
class Topology:
    """The levels, farthest first. Nodes are always the lowest level, named in the list or not."""

    levels: tuple[Level, ...] = ()

    def __post_init__(self) -> None:
        """Checks the levels.

        Raises:
            InvalidTopology: a name or key appears twice, a bandwidth is not positive, or hosts are not the last level.
        """
        for what in ("name", "key"):
            twice = [v for v, n in Counter(getattr(level, what) for level in self.levels).items() if n > 1]
            if twice:
                raise InvalidTopology(f"levels: the {what} {twice[0]!r} appears twice; give each level its own")
        for level in self.levels:
            if not level.bandwidth > 0:
                raise InvalidTopology(f"levels: bandwidth of {level.name!r} is {level.bandwidth}; it must be above 0")
        if any(level.key == HOSTNAME for level in self.levels[:-1]):
            raise InvalidTopology(f"levels: {HOSTNAME} names single nodes; put it last or leave it out")

    @property
    def keys(self) -> tuple[str, ...]:
        """The labels that a node must have."""
        return tuple(level.key for level in self.levels)

    def down_to_nodes(self) -> tuple[Level, ...]:
        """The levels with that of the nodes as the last one."""
        if self.levels and self.levels[-1].key == HOSTNAME:
            return self.levels
        fastest = max((level.bandwidth for level in self.levels), default=1.0)
        return (*self.levels, Level(NODE, HOSTNAME, fastest))


@dataclass(frozen=True)
class Tree:
    """The nodes in the order of their paths, so that every domain is a run of neighbours."""

    levels: tuple[Level, ...]
    """Level 0 is the whole cluster, the last one is single nodes."""
    nodes: tuple[NodeCapacity, ...]
    domains: tuple[Sequence[int], ...]
    """By level and position of a node: the number of its domain."""
    starts: tuple[Sequence[int], ...]
    """By level and number of a domain: position of its first node; one more entry closes the last domain."""
    unlabelled: Mapping[str, int]
    """How many nodes were left out, by the first label that they lack."""

    @classmethod
    def of(cls, topology: Topology, nodes: Iterable[NodeCapacity]) -> Tree:
        """Sorts nodes into domains."""
        keys = topology.keys
        unlabelled: Counter[str] = Counter()
        placed: list[tuple[tuple[str, ...], str, NodeCapacity]] = []
        for node in nodes:
            labels = node.labels
            try:
                placed.append((tuple([labels[key] for key in keys]), node.name, node))
            except KeyError as missing:
                unlabelled[missing.args[0]] += 1
        placed.sort(key=lambda entry: entry[:2])
        levels = (Level("cluster", "", float("inf")), *topology.down_to_nodes())
        paths = [path for path, _, _ in placed]
        domains, starts = _runs(paths, len(levels))
        return cls(levels, tuple(node for _, _, node in placed), domains, starts, unlabelled)

    @cached_property
    def position(self) -> Mapping[str, int]:
        """Where a node stands, by its name."""
        return {node.name: i for i, node in enumerate(self.nodes)}

    def within(self, level: int, domain: int, below: int) -> range:
        """Numbers of the domains of a lower level that lie in a domain."""
        row, span = self.domains[below], self.span(level, domain)
        return range(row[span[0]], row[span[-1]] + 1) if span else range(0)

    def level(self, name: str) -> int | None:
        """Position of the level with this name or label key; None if there is none."""
        return next((i for i, level in enumerate(self.levels) if i and name in (level.name, level.key)), None)

    def size(self, level: int) -> int:
        """Number of domains at a level."""
        return len(self.starts[level]) - 1

    def span(self, level: int, domain: int) -> range:
        """Positions of the nodes of a domain."""
        return range(self.starts[level][domain], self.starts[level][domain + 1])

    def children(self, level: int, domain: int) -> range:
        """Numbers of the domains that make up a domain, one level below."""
        return self.within(level, domain, level + 1)

    def path(self, level: int, domain: int) -> str:
        """What a domain is called: the values of all labels from the outermost level down to its own."""
        node = self.nodes[self.starts[level][domain]]
        last = len(self.levels) - 1
        values = [node.labels[each.key] for each in self.levels[1 : min(level, last - 1) + 1]]
        return "/".join([*values, node.name] if level == last else values)


def _runs(paths: Sequence[tuple[str, ...]], levels: int) -> tuple[tuple[list[int], ...], tuple[list[int], ...]]:
    """Numbers the domains of each level along the sorted paths."""
    everything = list(range(len(paths)))
    domains: list[list[int]] = [[0] * len(paths)]
    starts = [[0, len(paths)] if paths else [0]]
    for depth in range(1, levels - 1):
        numbers, begins, before = [], [], None
        for position, path in enumerate(paths):
            if (prefix := path[:depth]) != before:
                begins.append(position)
                before = prefix
            numbers.append(len(begins) - 1)
        domains.append(numbers)
        starts.append([*begins, len(paths)])
    domains.append(everything)
    starts.append([*everything, len(paths)])
    return tuple(domains), tuple(starts)
