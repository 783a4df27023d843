"""The small world that `decide` is tried in, as values: what there is, what is believed, what may still go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from tests.controller.lifecycle.mirror import Pods
from tests.controller.lifecycle.promises import Ledger

Op = tuple[Literal["create"], int, int] | tuple[Literal["delete"], int, int, int, int] | tuple[Literal["plan"]]
"""create (incarnation, index); delete (incarnation, index, generation of its UID, grace); plan."""
Late = Op | tuple[Literal["write"], int]


class Budgets(NamedTuple):
    """How often each thing may still happen."""

    fails: int = 0
    deletions: int = 0
    node_losses: int = 0
    toggles: int = 0
    crashes: int = 0
    transfers: int = 0
    refusals: int = 0
    plan_deletions: int = 0
    preemptions: int = 0


class Leader(NamedTuple):
    """What the leading process believes and has yet to do."""

    job: tuple[int, bool, int] | None = None
    """An outdated view of (status, suspend, generation); None if the view is current."""
    at: int = 0
    """Position of its view of the pods in `World.tail`."""
    seen: int = 0
    """Identities that it has seen or created."""
    unseen: int = 0
    """Identities that it created and that its view does not show yet."""
    stopped: int = 0
    """Identities that it asked to stop and that its view shows undisturbed."""
    in_hand: bool = False
    """Whether it holds the plan that is committed now."""
    todo: tuple[Op, ...] = ()
    """Actions of its decision that are still to be carried out."""


class Standby(NamedTuple):
    """What the other process knows; it has no memory beyond its view of the pods."""

    at: int = 0
    seen: int = 0
    jobs: tuple[tuple[int, bool, int], ...] = ()
    """Earlier states of the job; only kept for a process that does not read it when it begins to lead."""


class World(NamedTuple):
    """Everything, in one moment."""

    status: int
    suspend: bool
    generation: int
    stored: bool
    lapsed: bool
    """Whether the open incident's time for evidence is over."""
    tail: tuple[Pods, ...]
    """The pods as they are now (last) and as they were, back to the oldest view."""
    created: int
    """Identities of which a create succeeded."""
    again: int
    """Identities of which a second create succeeded."""
    robbed: int
    """Identities whose pod was taken away by somebody else."""
    lost: int
    """Identities whose node is lost."""
    leader: Leader
    standby: Standby
    late: Late | None
    ledger: Ledger
    left: Budgets
    wanted: bool = False
    """Whether the gang must give its places to another."""


@dataclass(frozen=True)
class Setting:
    """What an exploration allows."""

    name: str
    budgets: Budgets
    pods: int = 2
    lag: int = 1
    """Events that a view may be behind."""
    late: bool = False
    successes: bool = True
    exits_on_stop: bool = False
    """Whether a stopped pod may also be seen ended (exit codes 0 and 143) before it is gone."""
    max_restarts: int = 10
    force: bool = False
    versions: bool = True
    """Whether writes are checked against the version that they were decided from. False only in a mutant."""
    fresh_start: bool = True
    """Whether a process reads the job itself when it begins to lead. False only in a mutant."""


Step = tuple[str, World]
"""What happens, and the world after it."""
