"""The phases of a job and the one table of what may follow what."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from meshwright_api.status import Phase

TERMINAL: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED})
"""Nothing follows these, whatever happens to the pods."""

ACTIVE: Final = frozenset({Phase.ADMITTED, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING})
"""Phases in which `activeDeadlineSeconds` counts: neither queueing nor suspended nor over."""

PLANNED: Final = frozenset({Phase.ADMITTED, Phase.STARTING, Phase.RUNNING})
"""Phases in which the current attempt has a plan, and its pods are created or watched."""

_END: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED})

TRANSITIONS: Final[Mapping[Phase | None, frozenset[Phase]]] = {
    None: frozenset({Phase.PENDING, Phase.ADMITTED, Phase.SUSPENDED}),
    Phase.PENDING: frozenset({Phase.ADMITTED, Phase.SUSPENDED}),
    # Admitted -> Admitted: a plan that was committed but never stored is replaced by a new one.
    Phase.ADMITTED: _END
    | {Phase.ADMITTED, Phase.PENDING, Phase.STARTING, Phase.RUNNING, Phase.RESTARTING, Phase.SUSPENDED},
    Phase.STARTING: _END | {Phase.RUNNING, Phase.RESTARTING, Phase.SUSPENDED},
    Phase.RUNNING: _END | {Phase.RESTARTING, Phase.SUSPENDED},
    Phase.RESTARTING: frozenset({Phase.ADMITTED, Phase.PENDING, Phase.SUSPENDED, Phase.FAILED}),
    Phase.SUSPENDED: frozenset({Phase.PENDING, Phase.ADMITTED}),
    Phase.SUCCEEDED: frozenset(),
    Phase.FAILED: frozenset(),
}


class IllegalTransition(AssertionError):
    """A decision tried a step that the table does not have: a defect of ours, never of a user."""


def step(old: Phase | None, new: Phase) -> Phase:
    """Returns `new` if it may follow `old` (staying is always allowed).

    Raises:
        IllegalTransition: the table has no such step.
    """
    if new != old and new not in TRANSITIONS[old]:
        raise IllegalTransition(f"{old} -> {new}")
    return new
