"""What must hold in every world, each promise with its name. A step that breaks one raises `Violation`.

The environment keeps its own ledger of what it did to the gang, so that an incident's cause and charge are judged by
what happened and not by what the code under test saw.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from meshwright.lifecycle.conditions import holds
from meshwright.lifecycle.phases import PLANNED, TERMINAL
from meshwright.lifecycle.success import recorded
from meshwright_api import names
from meshwright_api.status import Cause, Phase, TrainingJobStatus
from tests.controller.lifecycle.mirror import PodFacts, Pods

PROMISES: Final = {
    "created once": """At most one successful create for each (role, index, incarnation). Without late writes there is
        one exception: somebody else took the first pod away before the launch was recorded, and no living process had
        seen it.""",
    "judged before created": """A pod is created only for the committed incarnation, while no incident is open.""",
    "old ones stopped": """When a pod is created, every pod of an older incarnation has ended or was asked to stop.""",
    "never backwards": """Attempt and incarnation never decrease; a new plan has new ones of both.""",
    "no fault, no incident": """An incident is opened only after something happened to the current incarnation.""",
    "charged exactly": """An incident is charged if and only if it began with a failure of a pod's own.""",
    "counted once": """One incident for each broken incarnation, however many pods fail, whoever leads or dies.""",
    "budget kept": """Charges and disruptions are never forgotten, and each judgement adds exactly one of them.""",
    "final is final": """Nothing changes the phase of a job that has Succeeded or Failed.""",
    "success is true": """A job Succeeded only if each of its pods ended with exit code 0 before anybody stopped it.""",
    "suspended is empty": """A job is Suspended only when none of its pods remains.""",
    "healthy ones live": """Nobody stops a pod of the current incarnation unless it breaks, suspends or is over.""",
    "decisions come to rest": """Without new events a leader has nothing to do after finitely many steps.""",
    "rest is right": """At rest the gang runs whole, or the job is suspended without pods, or it is over and nothing
        runs; of older pods only the last culprit's remains are there.""",
}
"""Name and meaning of every promise."""


class Violation(AssertionError):
    """A promise was broken."""

    def __init__(self, promise: str, detail: str) -> None:
        super().__init__(f"{promise}: {detail}")
        self.promise = promise


class Ledger(NamedTuple):
    """What truly happened to the current incarnation."""

    first: Literal["", "charged", "free"] = ""
    """Whose fault the first disturbance was."""
    clouded: bool = False
    """Whether what showed the fault was destroyed before it could be seen, so that either judgement is right."""
    opened: bool = False
    judged: bool = False
    done: int = 0
    """Indexes of the pods that truly succeeded."""


def disturbed(ledger: Ledger, status: TrainingJobStatus, pod: PodFacts, after: PodFacts | None, fault: str) -> Ledger:
    """The ledger after something happened to a pod."""
    if pod.incarnation != status.incarnation or status.phase not in (*PLANNED, Phase.RESTARTING):
        return ledger
    if after is not None and after.state == "S" and not after.after:
        return ledger._replace(done=ledger.done | 1 << pod.rank)
    if ledger.judged:
        return ledger
    lasting = pod.state == "S" and ("worker", pod.rank) in recorded(status)
    if fault and not lasting:
        ledger = _blame(ledger, fault)
    if after is None and not ledger.opened and _showed_it(ledger, pod):
        ledger = ledger._replace(clouded=True)
    return ledger


def _blame(ledger: Ledger, fault: str) -> Ledger:
    if not ledger.first and not ledger.opened:
        return ledger._replace(first="charged" if fault == "failed" else "free")
    # A node that is lost later still makes the incident free, if it is known in time.
    return ledger._replace(clouded=True) if fault == "lost" else ledger


def _showed_it(ledger: Ledger, pod: PodFacts) -> bool:
    """Whether the pod, which is now gone, was what showed the fault."""
    return ledger.first == "free" or (ledger.first == "charged" and pod.state == "F" and not pod.after)


def check_create(
    status: TrainingJobStatus, incarnation: int, pods: Pods, *, again: bool, forgivable: bool, late: bool
) -> None:
    """Judges a create that the server is about to carry out."""
    if late:
        return
    if again and not (forgivable and status.launched != status.attempt):
        raise Violation("created once", f"a second pod of incarnation {incarnation}")
    if status.incident or status.incarnation != incarnation or status.phase not in PLANNED:
        raise Violation("judged before created", f"a pod of incarnation {incarnation}; the status is {status.phase}")
    for pod in pods:
        if pod.incarnation < incarnation and pod.state in "WR" and not pod.stop:
            raise Violation("old ones stopped", f"{pod.name} runs while incarnation {incarnation} is created")


def check_stop(status: TrainingJobStatus, pod: PodFacts) -> None:
    """Judges a deletion by the operator that the server is about to carry out."""
    over = status.phase in TERMINAL or status.phase not in PLANNED or holds(status, names.SUSPENDING)
    if pod.incarnation == status.incarnation and not over and pod.state in "WR":
        raise Violation("healthy ones live", f"{pod.name} is stopped; the status is {status.phase}")


def check_write(
    old: TrainingJobStatus, new: TrainingJobStatus, ledger: Ledger, pods: Pods, *, late: bool, size: int
) -> Ledger:
    """Judges a status write that the server is about to carry out; returns the ledger after it."""
    if old.phase in TERMINAL and new.phase is not old.phase:
        raise Violation("final is final", f"{old.phase} -> {new.phase}")
    if new.attempt < old.attempt or new.incarnation < old.incarnation:
        raise Violation("never backwards", f"attempt {old.attempt} -> {new.attempt}")
    ledger = _incident_written(old, new, ledger)
    if new.phase is Phase.SUCCEEDED and old.phase is not Phase.SUCCEEDED and ledger.done != (1 << size) - 1:
        raise Violation("success is true", f"succeeded pods: {ledger.done:b}")
    if new.phase is Phase.SUSPENDED and old.phase is not Phase.SUSPENDED and pods and not late:
        raise Violation("suspended is empty", f"{len(pods)} pods remain")
    if new.plan_sha256 and new.plan_sha256 != old.plan_sha256:
        if new.incarnation == old.incarnation or new.attempt == old.planned:
            raise Violation("never backwards", "a new plan with an old number")
        if old.phase is Phase.RESTARTING and not ledger.judged:
            raise Violation("counted once", "a new plan before the incident was judged")
        return Ledger()
    return ledger


def _incident_written(old: TrainingJobStatus, new: TrainingJobStatus, ledger: Ledger) -> Ledger:
    charged, free = (
        len(n) - len(o) for n, o in ((new.charged_restarts, old.charged_restarts), (new.disruptions, old.disruptions))
    )
    if charged < 0 or free < 0 or new.restarts - old.restarts != charged + free:
        raise Violation("budget kept", f"charged {charged:+}, free {free:+}")
    if new.incident and not old.incident:
        if ledger.opened or ledger.judged:
            raise Violation("counted once", "a second incident of one incarnation")
        if not ledger.first and not ledger.clouded and new.incident.trigger is not Cause.PLAN_LOST:
            raise Violation("no fault, no incident", f"{new.incident.trigger} at {new.incident.evidence.pod}")
        return ledger._replace(opened=True)
    if old.incident and not new.incident:
        if not new.incidents or new.incidents[-1].attempt != old.incident.attempt:
            raise Violation("counted once", "an incident was closed without a judgement")
        last = new.incidents[-1]
        if not ledger.clouded and last.charged is not (ledger.first == "charged"):
            raise Violation("charged exactly", f"{last.cause}, charged {last.charged}; it was {ledger.first}")
        if new.phase is not Phase.FAILED and (charged, free) != (int(last.charged), int(not last.charged)):
            raise Violation("budget kept", f"{last.cause}: charged {charged:+}, free {free:+}")
        return ledger._replace(judged=True)
    if charged or free:
        raise Violation("counted once", "counted without an incident")
    return ledger
