"""Where a placed gang sits in the topology: which ranks share which domain, and what traffic leaves it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby

from meshwright.placement.nesting.cost import Cost
from meshwright.placement.nesting.layout import Layout
from meshwright.placement.topology.tree import Tree

Member = tuple[str, int]
"""A place in a gang: role and index. Which incarnation of the pod fills it does not matter here."""


@dataclass(frozen=True)
class Seating:
    """A gang in the tree."""

    tree: Tree
    nodes: Mapping[Member, int]
    """By role and index: the node's position in the tree. Pods beside the tree are left out."""
    grid: tuple[Member, ...] = ()
    """The pods that the layout is about, by their number in it."""
    layout: Layout | None = None
    naive: Callable[[], Mapping[Member, str] | None] = lambda: None
    """Where first fit would have put the same pods."""

    def domains(self, level: int) -> Iterator[tuple[int, tuple[Member, ...]]]:
        """Every domain of a level that is used, with the pods in it, ascending."""
        row = self.tree.domains[level]
        ordered = sorted(self.nodes, key=lambda member: (row[self.nodes[member]], member))
        for domain, members in groupby(ordered, key=lambda member: row[self.nodes[member]]):
            yield domain, tuple(members)

    def count(self, level: int) -> int:
        """How many domains of a level are used."""
        row = self.tree.domains[level]
        return len({row[node] for node in self.nodes.values()})

    def crossing(self) -> Mapping[str, float] | None:
        """By level: bytes that leave its domains in a step; None if nothing is known of the gang's traffic."""
        return self._crossing(self.nodes[member] for member in self.grid)

    def naive_crossing(self) -> Mapping[str, float] | None:
        """The same for first fit; None as well if that finds no place."""
        names = self.naive()
        if names is None:
            return None
        position = {node.name: i for i, node in enumerate(self.tree.nodes)}
        return self._crossing(position[names[member]] for member in self.grid)

    def _crossing(self, assignment: Iterable[int]) -> Mapping[str, float] | None:
        return Cost.of(self.tree, self.layout).crossing(tuple(assignment)) if self.layout and self.grid else None
