"""The decision of one pass: what a job needs now.

Reads as a table of contents: the first step that has something to say decides. A pass either writes the status or acts;
whatever an action relies on is therefore durable before it, and a crash between two passes loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from meshwright.lifecycle import progressing, stopping
from meshwright.lifecycle.admitting import admit, needs_offer
from meshwright.lifecycle.breaking import judge_incident, open_incident, refund
from meshwright.lifecycle.conditions import put
from meshwright.lifecycle.deadlines import next_deadline
from meshwright.lifecycle.ending import expire, finish, finished, record_successes
from meshwright.lifecycle.model import Decision, Observation, Policy
from meshwright.lifecycle.phases import TERMINAL, step
from meshwright.lifecycle.releasing import release
from meshwright.lifecycle.starting import launch, run
from meshwright_api import names
from meshwright_api.status import Phase

__all__ = ["decide", "needs_offer"]

Step = Callable[[Observation, Policy], Decision | None]

STEPS: Final[tuple[Step, ...]] = (
    finish,
    judge_incident,
    expire,
    stopping.suspend,
    refund,
    open_incident,
    stopping.stop_leftovers,
    admit,
    launch,
    record_successes,
    run,
    stopping.clear_old_pods,
)
"""In the order in which they may speak."""

REFRESH_SECONDS: Final = 30.0
"""How soon to look again when something is to be noted that is not urgent."""


def decide(o: Observation) -> Decision:
    """What the job needs now."""
    if o.job.deleting:
        return release(o) or stopping.let_go(o)
    if not o.job.status_readable:
        return Decision(why=f"the status cannot be read: {o.job.problem}")
    if o.status.phase in TERMINAL:
        return _or_release(o, finished(o))
    policy = o.job.policy
    if policy is None:
        return _refuse(o)
    drafted = progressing.noted(_accept(o))
    for speak in STEPS:
        if decision := speak(drafted, policy):
            return _or_release(o, _checked(drafted, decision))
    if decision := progressing.tell(o.status, drafted):
        return decision
    figures = progressing.news(o.status, drafted.status)
    return Decision(wake_after=_next_look(drafted, policy, figures), why="nothing to do")


def _or_release(o: Observation, decision: Decision) -> Decision:
    """What was decided; where that is nothing, what must outlive the pods is given back."""
    idle = decision.status is None and not decision.actions and not decision.confirm_pods
    return (release(o) if idle else None) or decision


def _next_look(o: Observation, policy: Policy, figures: bool) -> float | None:
    """Seconds until a clock runs out, or until what was not urgent is noted; no event would tell of either."""
    clock = next_deadline(o, policy)
    due = replace(o, progress_due=True)
    if o.progress_due or not (figures or record_successes(due, policy) or run(due, policy)):
        return clock
    return REFRESH_SECONDS if clock is None else min(clock, REFRESH_SECONDS)


def _accept(o: Observation) -> Observation:
    """The observation with the spec's acceptance noted in the draft; it is written with the next real change."""
    status = put(o.status, names.ACCEPTED, True, names.REASON_VALID, "", now=o.now, generation=o.job.generation)
    return replace(o, status=status)


def _refuse(o: Observation) -> Decision:
    """A spec that cannot be run: say so; touch nothing, since a spec that is unreadable says nothing about pods."""
    status = put(
        o.status,
        names.ACCEPTED,
        False,
        names.REASON_INVALID_SPEC,
        o.job.problem,
        now=o.now,
        generation=o.job.generation,
    )
    update: dict[str, object] = {"observed_generation": o.job.generation}
    if status.phase is None:
        update |= {"phase": Phase.PENDING, "reason": names.REASON_INVALID_SPEC}
    status = status.model_copy(update=update)
    if status == o.status:
        return Decision(why="the spec cannot be run")
    return Decision(status=status, why="the spec cannot be run")


def _checked(o: Observation, decision: Decision) -> Decision:
    if decision.status is not None and decision.status.phase is not None:
        step(o.status.phase, decision.status.phase)
    return decision
