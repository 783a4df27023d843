"""Faults as data: what goes wrong between the operator and the API server, when, and for which calls."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from tests.chaos.calls import Call


class Kind(StrEnum):
    """What may go wrong.

    *Unsent*: the API server never sees the call. *Sent*: it carries the call out, but the answer is lost.
    """

    DELAY = "Delay"
    HANG_UNSENT = "HangUnsent"
    HANG_SENT = "HangSent"
    RESET_UNSENT = "ResetUnsent"
    RESET_SENT = "ResetSent"
    REFUSE = "Refuse"
    """Answered with `status` without being sent: 429 (with Retry-After), 500, 503, 401, 403, a false 409, 410."""
    STALE = "Stale"
    """A get or list is answered with an older copy, whose resource version is older, too."""
    FREEZE = "Freeze"
    """Nothing moves, in either direction, until the window is over."""
    CUT = "Cut"
    """Every open watch is cut when the window begins."""
    EXPIRE = "Expire"
    """Every open watch ends with an ERROR event of code 410 when the window begins."""
    SWALLOW = "Swallow"
    """Watch events are lost; when the window is over the watch says 410, as one does that has a gap."""
    DUPLICATE = "Duplicate"
    """Watch events come twice."""


UNSENT = frozenset({Kind.HANG_UNSENT, Kind.RESET_UNSENT, Kind.REFUSE})
LOST = frozenset({Kind.HANG_SENT, Kind.RESET_SENT})
STREAM = frozenset({Kind.CUT, Kind.EXPIRE, Kind.SWALLOW, Kind.DUPLICATE})
"""Kinds that touch watches that are open already."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        kind: What goes wrong.
        verbs: Verbs of the calls it befalls; empty: all.
        resources: Plural names of their resources; empty: all.
        share: Share of those calls that it befalls.
        seconds: How long a call is delayed or hangs.
        status: HTTP status of a refusal.
        events: Types of the watch events that are lost or doubled; empty: all.
    """

    kind: Kind
    verbs: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    share: float = 1.0
    seconds: float = 0.0
    status: int = 0
    events: tuple[str, ...] = ()

    def befalls(self, call: Call) -> bool:
        """Whether the call is of those it is about."""
        if self.verbs and call.verb not in self.verbs:
            return False
        if self.kind is Kind.STALE and call.verb not in ("get", "list"):
            return False
        return not self.resources or call.resource in self.resources


@dataclass(frozen=True, slots=True)
class Window:
    """A fault and the seconds, from the start of the run, between which it happens."""

    start: float
    end: float
    fault: Fault


@dataclass(frozen=True, slots=True)
class Schedule:
    """All faults of a run; chance is drawn from the seed and the call's number."""

    windows: tuple[Window, ...] = ()
    seed: int = 0

    def active(self, at: float) -> Iterator[Fault]:
        """The faults of that moment."""
        return (window.fault for window in self.windows if window.start <= at < window.end)


@dataclass(frozen=True, slots=True)
class Interference:
    """What befalls one call: at most one fault before it, one after it, and a delay."""

    delay: float = 0.0
    unsent: Fault | None = None
    lost: Fault | None = None
    stale: bool = False

    @classmethod
    def draw(cls, call: Call, faults: Iterator[Fault], chance: Iterator[float]) -> Interference:
        """Chooses for one call among the active faults; the first of a kind wins."""
        delay, found = 0.0, dict[str, Fault]()
        for fault in faults:
            if fault.kind in STREAM or not fault.befalls(call) or next(chance) >= fault.share:
                continue
            if fault.kind is Kind.DELAY:
                delay = max(delay, fault.seconds)
            elif fault.kind in UNSENT:
                found.setdefault("unsent", fault)
            elif fault.kind in LOST:
                found.setdefault("lost", fault)
            elif fault.kind is Kind.STALE:
                found.setdefault("stale", fault)
        return cls(delay, found.get("unsent"), found.get("lost"), "stale" in found)


@dataclass(slots=True)
class Tally:
    """How often each fault really happened."""

    counts: dict[str, int] = field(default_factory=dict)

    def add(self, kind: Kind) -> None:
        """One more."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
