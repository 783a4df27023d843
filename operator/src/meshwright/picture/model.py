"""What a picture of the cluster consists of: plain values, from which text, JSON and SVG are made."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from meshwright.placement.topology.tree import Level


@dataclass(frozen=True, slots=True)
class Gpus:
    """GPUs of a domain; every one of them is counted once."""

    free: int = 0
    busy: int = 0
    """Of pods that are not the drawn job's."""
    closed: int = 0
    """Not in use, on nodes that are not ready or cordoned."""
    job: int = 0
    """The drawn job's."""

    @property
    def total(self) -> int:
        """All of them."""
        return self.free + self.busy + self.closed + self.job

    def __add__(self, more: Gpus) -> Gpus:
        return Gpus(self.free + more.free, self.busy + more.busy, self.closed + more.closed, self.job + more.job)


@dataclass(frozen=True, slots=True)
class Domain:
    """A part of the cluster, from the whole of it down to one node."""

    level: str
    """Name of its level; the whole is called `cluster`."""
    name: str
    """The value of its label, the node's name, or what was summed up here: `12 others`."""
    nodes: int
    gpus: Gpus
    pods: int = 0
    """Of the drawn job."""
    ranks: tuple[int, ...] = ()
    """Of the drawn job, ascending."""
    note: str = ""
    """Why a node takes no pods: `not ready`, `cordoned`."""
    children: tuple[Domain, ...] = ()
    """One level below; none for a node, and for a domain that is not drawn in more detail."""
    is_node: bool = False
    """Whether this is one node, and not what stands for several."""

    def walk(self) -> Iterator[Domain]:
        """The domain and everything in it, from the top."""
        yield self
        for child in self.children:
            yield from child.walk()


class State(StrEnum):
    """How a drawn job stands to its places."""

    RUNS = "Runs"
    """It holds them."""
    WOULD_START = "WouldStart"
    """It would get them if it were asked for now."""
    WAITS = "Waits"
    """It has none."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """What leaves the domains of one level in a step."""

    level: str
    domains: int
    """Domains that the gang is in."""
    bytes: float | None
    """None where nothing is known about who talks to whom."""
    first_fit: float | None
    """The same if the gang were placed by first fit; None if that finds no place."""


@dataclass(frozen=True, slots=True)
class LevelRoom:
    """The room for a gang at one level."""

    level: str
    domains: int
    together: int
    """Pods that must not be parted at this level."""
    best: str
    """Path of the domain with the most room; empty where there is none."""
    best_pods: int
    """How many pods of the gang it has room for."""
    whole: int
    """Domains that could hold the whole gang."""


@dataclass(frozen=True, slots=True)
class Sited:
    """A job in the picture."""

    name: str
    namespace: str
    state: State
    mesh: tuple[tuple[str, int], ...]
    """Axes that are wider than 1, outermost first; empty with an image of one's own."""
    pods: int
    processes: int
    crossing: tuple[Crossing, ...] = ()
    """By level, outermost first."""
    rooms: tuple[LevelRoom, ...] = ()
    """For a job that waits."""
    reason: str = ""
    """For a job that waits: one of the reasons of `meshwright_api.names`."""
    message: str = ""
    """What is missing, with counts; for one that would start, what it would like and cannot have."""
    phase: str = ""
    """Where the operator has it in its life; empty if no operator has seen it."""
    told: str = ""
    """What the operator says of its places in the job's own status."""


@dataclass(frozen=True)
class Picture:
    """A cluster, and perhaps a job in it."""

    topology: str
    """Name of the topology."""
    guessed: bool
    """Whether it was found out from the nodes' labels, and not given."""
    levels: tuple[Level, ...]
    """Outermost first, without the whole cluster."""
    root: Domain
    unlabelled: tuple[tuple[str, int], ...] = ()
    """Nodes that stand nowhere, by the first label that they lack."""
    job: Sited | None = None


def ranges(numbers: Iterable[int]) -> str:
    """Ascending numbers for people: `0-7,16-23`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in found)
