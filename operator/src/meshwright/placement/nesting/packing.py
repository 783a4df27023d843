"""Lays a sequence of pods into the tree from the top: as few domains as will do, whole blocks, the tightest that fits.

With room counted in whole units (`room.usable`) a place is found whenever there is one.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence

from meshwright.placement.nesting.orders import Order
from meshwright.placement.topology.tree import Tree

_COMPARED = 512
"""Nodes of a cluster in which equal domains are told apart by how their room is divided."""


class Packing:
    """One order of pods, laid into one domain."""

    def __init__(
        self,
        tree: Tree,
        usable: Sequence[Sequence[int]],
        units: Sequence[int],
        order: Order,
        *,
        best_fit: bool = False,
    ) -> None:
        """Prepares.

        Args:
            tree: the topology.
            usable: by level and domain, pods that it can hold in whole units.
            units: by level, pods that must not be parted there.
            order: the pods, and the blocks that they nest.
            best_fit: lay each block where it fits most tightly, parting what fits nowhere where there is most room,
                in place of filling one domain after the other. Which is cheaper depends on what is free.
        """
        self._best_fit = best_fit
        self._tree = tree
        self._usable = usable
        self._units = units
        self._order = order
        self._nodes = [-1] * len(order.pods)

    def into(self, level: int, domain: int) -> list[int]:
        """The node's position for every pod; the domain must have room for all of them."""
        self._place(level, domain, range(len(self._order.pods)))
        return self._nodes

    def _place(self, level: int, domain: int, positions: Sequence[int]) -> None:
        while level < len(self._tree.levels) - 1:
            children = self._tree.children(level, domain)
            level += 1
            home = tightest(self._usable[level], children, len(positions))
            if home is None:
                for child, mine in self._split(level, children, positions).items():
                    self._place(level, child, sorted(mine))
                return
            domain = home
        for position in positions:
            self._nodes[self._order.pods[position]] = domain

    def _split(self, level: int, children: Sequence[int], positions: Sequence[int]) -> dict[int, list[int]]:
        """Shares positions out among several domains: large blocks first, and what is left over in smaller ones."""
        usable = self._usable[level]
        room = {child: usable[child] for child in children if usable[child]}
        given: dict[int, list[int]] = {}
        if self._best_fit:
            block = next((b for b in self._order.blocks if b <= max(room.values())), 1)
            _fit(_pieces(positions, max(block, self._units[level])), self._units[level], room, given)
            return given
        rest = positions
        for block in self._order.blocks:
            if block % self._units[level] == 0 and rest:
                queue = self._queue(level, room, given, block)
                rest = _share(rest, block, queue, room, given)
        return given

    def _queue(self, level: int, room: Mapping[int, int], given: Mapping[int, list[int]], block: int) -> list[int]:
        """Which domains to fill first: those in use, or the gang would spread further than it must; then those with the
        most room for whole blocks; of equal ones the one that is itself the least divided."""
        nodes = self._usable[-1] if len(self._usable[-1]) <= _COMPARED else []

        def divided(domain: int) -> list[int]:
            return sorted(-nodes[node] for node in self._tree.span(level, domain)) if nodes else []

        return sorted(room, key=lambda d: (d not in given, -(room[d] // block), divided(d), room[d] % block, d))


def tightest(usable: Sequence[int], domains: Sequence[int], count: int) -> int | None:
    """The domain with the least room that holds so many pods, so that the big holes survive."""
    fitting = [domain for domain in domains if usable[domain] >= count]
    return min(fitting, key=lambda domain: usable[domain], default=None)


def _share(
    positions: Sequence[int], block: int, queue: list[int], room: dict[int, int], given: dict[int, list[int]]
) -> Sequence[int]:
    """Gives whole blocks to one domain after the other; returns the positions of those that found none.

    Args:
        positions: what is to be shared out, ascending.
        block: size of a block; positions of one block that were parted before count as a block.
        queue: domains in the order in which they are filled. Changed.
        room: by domain, what it can still hold. Changed.
        given: by domain, what it holds. Changed.
    """
    pieces = _pieces(positions, block)
    left: list[int] = []
    current, waiting = 0, len(positions)
    for piece in pieces:
        size = len(piece)
        while current < len(queue) and room[queue[current]] < size:
            current += 1
        if current == len(queue):
            left.extend(piece)
            # A smaller piece may still find room where a larger one found none.
            current = 0 if any(len(p) < size for p in pieces) else current
            continue
        home = queue[current]
        if home not in given and room[home] >= waiting:
            # All that is left fits into one: into the tightest that takes it.
            home = min((d for d in queue[current:] if room[d] >= waiting), key=lambda d: room[d])
            queue.remove(home)
            queue.insert(current, home)
        room[home] -= size
        given.setdefault(home, []).extend(piece)
        waiting -= size
    return left


def _fit(pieces: list[list[int]], unit: int, room: dict[int, int], given: dict[int, list[int]]) -> None:
    """Lays pieces, the longest first, each into the domain that it fills best; parts those that fit nowhere.

    Args:
        pieces: whole units of positions. Changed.
        unit: positions that must not be parted.
        room: by domain, what it can still hold, in whole units. Changed.
        given: by domain, what it holds. Changed.
    """
    pieces.sort(key=len, reverse=True)
    while pieces:
        piece = pieces.pop(0)
        home = min((d for d in room if room[d] >= len(piece)), key=lambda d: room[d], default=None)
        if home is None:
            home = max(room, key=lambda d: (room[d], -d))
            count = room[home] - room[home] % unit
            piece, rest = piece[:count], piece[count:]
            insort(pieces, rest, key=lambda p: -len(p))
        room[home] -= len(piece)
        given.setdefault(home, []).extend(piece)


def _pieces(positions: Sequence[int], block: int) -> list[list[int]]:
    pieces: list[list[int]] = []
    number = -1
    for position in positions:
        if position // block != number:
            number = position // block
            pieces.append([])
        pieces[-1].append(position)
    return pieces
