"""What a seed stands for, as data: a job, faults of the network and of the world, and signals to the operator."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

from tests.chaos.faults import Fault, Kind, Schedule, Window
from tests.chaos.life import Shape

SECONDS: Final = 16.0
"""For how long a run is disturbed."""

RULES: Final[tuple[Mapping[str, Any], ...]] = (
    {"exitCodes": [42], "action": "RestartFree"},
    {"exitCodes": [3], "action": "Fail"},
)


class Deed(StrEnum):
    """What may be done to the job."""

    EXIT_ONE = "ExitOne"
    EXIT_ALL = "ExitAll"
    EXIT_FREE = "ExitFree"
    EXIT_FATAL = "ExitFatal"
    OUT_OF_MEMORY = "OutOfMemory"
    DELETE_POD = "DeletePod"
    FORCE_DELETE_POD = "ForceDeletePod"
    LOSE_NODE = "LoseNode"
    SUSPEND = "Suspend"
    MAKE_AGAIN = "MakeAgain"


_WEIGHTS: Final = {
    Deed.EXIT_ONE: 6,
    Deed.EXIT_ALL: 3,
    Deed.EXIT_FREE: 2,
    Deed.EXIT_FATAL: 1,
    Deed.OUT_OF_MEMORY: 3,
    Deed.DELETE_POD: 4,
    Deed.FORCE_DELETE_POD: 2,
    Deed.LOSE_NODE: 3,
    Deed.SUSPEND: 3,
    Deed.MAKE_AGAIN: 2,
}


class Signal(StrEnum):
    """What may be done to the operator's process."""

    KILL = "Kill"
    PAUSE = "Pause"


@dataclass(frozen=True, slots=True)
class Happening:
    """A deed, not before `at`, done to the pod of that index where it is about one."""

    at: float
    deed: Deed
    index: int


@dataclass(frozen=True, slots=True)
class Blow:
    """A signal to the operator; a pause lasts for `seconds`."""

    at: float
    signal: Signal
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that a seed decides."""

    seed: int
    shape: Shape
    schedule: Schedule
    happenings: tuple[Happening, ...]
    blows: tuple[Blow, ...]
    uninstalled: bool

    @property
    def falsifies(self) -> bool:
        """Whether reads are answered with old copies, after which a pod may be taken for lost that is not."""
        return any(window.fault.kind is Kind.STALE for window in self.schedule.windows)

    def __str__(self) -> str:
        return json.dumps(asdict(self), indent=1, default=str)


def plan_of(seed: int) -> Plan:
    """The plan of a seed; the same for ever, as long as this module stays as it is."""
    chance = random.Random(seed)
    windows = tuple(_window(chance) for _ in range(chance.randint(2, 7)))
    stale = any(window.fault.kind is Kind.STALE for window in windows)
    shape = Shape(
        replicas=chance.randint(2, 4),
        max_restarts=chance.choice((10, 10, 10, 2, 1, 0)),
        # Old copies of pod lists cost disruptions that nobody caused, so then the budget must not be tight.
        max_disruptions=100 if stale else chance.choice((100, 100, 100, 2)),
        evidence_seconds=chance.choice((1, 1, 2)),
        start_seconds=chance.choice((0.0, 0.0, 0.5)),
        term_seconds=chance.choice((0.0, 0.0, 0.5, 1.5)),
        rules=RULES,
    )
    happenings = sorted((_happening(chance, shape) for _ in range(chance.randint(1, 5))), key=lambda h: h.at)
    blows = sorted((_blow(chance) for _ in range(chance.choice((0, 1, 1, 2, 3)))), key=lambda b: b.at)
    return Plan(seed, shape, Schedule(windows, seed), tuple(happenings), tuple(blows), chance.random() < 0.3)


def _window(chance: random.Random) -> Window:
    start = chance.uniform(0, SECONDS - 1)
    kind = chance.choice(list(Kind))
    longest = 2.0 if kind is Kind.FREEZE else 5.0
    return Window(round(start, 2), round(min(SECONDS, start + chance.uniform(0.3, longest)), 2), _fault(chance, kind))


def _fault(chance: random.Random, kind: Kind) -> Fault:
    resources = chance.choice(((), (), ("pods",), ("trainingjobs",), ("configmaps", "services"), ("leases",)))
    verbs = chance.choice(((), (), ("create",), ("patch", "update"), ("delete",), ("get", "list"), ("watch",)))
    share = chance.choice((1.0, 0.5, 0.2))
    if kind is Kind.DELAY:
        return Fault(kind, verbs, resources, share, seconds=round(chance.uniform(0.05, 1.5), 2))
    if kind in (Kind.HANG_SENT, Kind.HANG_UNSENT):
        return Fault(kind, verbs, resources, share, seconds=round(chance.uniform(0.5, 4), 2))
    if kind is Kind.REFUSE:
        return Fault(kind, verbs, resources, share, status=chance.choice((401, 403, 409, 410, 429, 500, 503, 504)))
    if kind in (Kind.SWALLOW, Kind.DUPLICATE):
        events = chance.choice(((), ("DELETED",), ("MODIFIED",), ("ADDED", "DELETED")))
        return Fault(kind, (), chance.choice(((), ("pods",), ("trainingjobs",), ("nodes",))), share, events=events)
    if kind in (Kind.CUT, Kind.EXPIRE, Kind.FREEZE):
        return Fault(kind)
    return Fault(kind, verbs, resources, share)


def _happening(chance: random.Random, shape: Shape) -> Happening:
    deed = chance.choices(list(_WEIGHTS), weights=list(_WEIGHTS.values()))[0]
    return Happening(round(chance.uniform(0, SECONDS), 2), deed, chance.randrange(shape.replicas))


def _blow(chance: random.Random) -> Blow:
    signal = chance.choice((Signal.KILL, Signal.KILL, Signal.PAUSE))
    seconds = round(chance.uniform(1, 6), 2) if signal is Signal.PAUSE else 0.0
    return Blow(round(chance.uniform(0, SECONDS), 2), signal, seconds)
