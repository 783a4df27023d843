"""The verdicts. Pure functions over recorded facts; nothing here asks the operator or knows its code."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from tests.chaos.facts import (
    ANNOTATION_PLAN,
    LABEL_INCARNATION,
    LABEL_INDEX,
    LABEL_JOB_UID,
    LABEL_ROLE,
    TERMINAL,
    AuditEvent,
    Facts,
    JobState,
)

LIFE_WRITES: Final = 8
INCIDENT_WRITES: Final = 5
"""Status writes that an undisturbed life may cost, and each incident (or suspension) more."""

_FOLLOWS: Final = {
    "": {"Pending", "Admitted", "Suspended"},
    "Pending": {"Admitted", "Suspended", "Failed"},
    "Admitted": {"Pending", "Starting", "Running", "Restarting", "Suspended", "Succeeded", "Failed"},
    "Starting": {"Running", "Restarting", "Suspended", "Succeeded", "Failed"},
    "Running": {"Restarting", "Suspended", "Succeeded", "Failed"},
    "Restarting": {"Admitted", "Pending", "Suspended", "Succeeded", "Failed"},
    "Suspended": {"Pending", "Admitted"},
    "Succeeded": set(),
    "Failed": set(),
}


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that must never be."""

    verdict: str
    detail: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.detail}"


def judge(facts: Facts) -> list[Violation]:
    """Everything that is wrong with a run; empty when it is as it should be."""
    return [Violation(verdict.__name__, detail) for verdict in VERDICTS for detail in verdict(facts)]


def no_pod_twice(facts: Facts) -> Iterator[str]:
    """At most one successful create per (job UID, role, index, incarnation)."""
    made = Counter(
        (e.labels.get(LABEL_JOB_UID), e.labels.get(LABEL_ROLE), e.labels.get(LABEL_INDEX), _incarnation(e))
        for e in _pods_made(facts)
    )
    yield from (f"{times} creates of {who}" for who, times in made.items() if times > 1)


def only_the_operator_makes_pods(facts: Facts) -> Iterator[str]:
    """With its service account, so with the rights of the chart."""
    for event in _pods_made(facts):
        if event.user != facts.operator:
            yield f"{event.name or event.labels} was created by {event.user}"


def deletes_are_guarded(facts: Facts) -> Iterator[str]:
    """Every deletion of ours names the UID that it means."""
    for event in facts.audit:
        ours = event.user == facts.operator and event.verb == "delete" and event.resource == "pods"
        if ours and not (event.request.get("preconditions") or {}).get("uid"):
            yield f"{event.name} was deleted without a UID"


def plan_comes_first(facts: Facts) -> Iterator[str]:
    """No pod of an incarnation before the status that commits its plan, and none from another plan."""
    committed: dict[str, dict[int, str]] = defaultdict(dict)
    for event in sorted(facts.audit, key=lambda e: e.at):
        if event.writes_status:
            status, uid = event.request.get("status") or {}, _uid_of(facts, event)
            if status.get("planSHA256"):
                committed[uid][status.get("incarnation") or _last(committed[uid])] = status["planSHA256"]
        elif event.creates_pod and event.user == facts.operator:
            uid, number = event.labels.get(LABEL_JOB_UID, ""), _incarnation(event)
            plan = ((event.response.get("metadata") or {}).get("annotations") or {}).get(ANNOTATION_PLAN)
            if number not in committed[uid]:
                yield f"{event.name or _pod_name(event)} was created before the status of incarnation {number}"
            elif committed[uid][number] != plan:
                yield f"{_pod_name(event)} is of plan {plan}, committed is {committed[uid][number]}"


def budgets_are_exact(facts: Facts) -> Iterator[str]:
    """Each incident that was caused was counted once, in the right budget."""
    for uid, last in _last_states(facts).items():
        ledger = facts.ledgers.get(uid)
        if ledger is None:
            continue
        spent = len(last.status.get("chargedRestarts") or ())
        free = len(last.status.get("disruptions") or ())
        due, due_free = ledger.charged, ledger.free
        if ledger.fails:  # the incident that ends a job is judged, but no restart is counted for it
            history = last.status.get("incidents") or ()
            spent, free = sum(i["charged"] for i in history), sum(not i["charged"] for i in history)
        what = ", ".join(entry.what for entry in ledger.entries) or "nothing"
        if spent != due:
            yield f"charged {spent}, due {due} for: {what}"
        if not due_free <= free <= due_free + ledger.slack:
            yield f"free {free}, due {due_free} (+{ledger.slack}) for: {what}"


def ends_as_it_should(facts: Facts) -> Iterator[str]:
    """A job fails when its budget is used up or a rule says so, and only then."""
    for uid, last in _last_states(facts).items():
        ledger = facts.ledgers.get(uid)
        if ledger and (last.phase == "Failed") != ledger.fails:
            yield f"phase {last.phase} ({last.status.get('reason')}), but it should{' not' * (not ledger.fails)} fail"
        if ledger and ledger.succeeds and last.phase != "Succeeded":
            yield f"phase {last.phase}, but it had succeeded"


def nothing_is_lost(facts: Facts) -> Iterator[str]:
    """Counters only grow, history is only added to, the start stays the start."""
    for old, new in _steps(facts):
        for key in ("attempt", "incarnation", "restarts", "launched", "planned", "observedGeneration", "activeSeconds"):
            if new.number(key) < old.number(key):
                yield f"{key} went from {old.number(key)} to {new.number(key)} at version {new.version}"
        for key in ("startTime", "imageID", "completionTime", "mesh"):
            if old.status.get(key) and new.status.get(key) != old.status[key]:
                yield f"{key} went from {old.status[key]} to {new.status.get(key)}"
        before = [i["attempt"] for i in old.status.get("incidents") or ()]
        after = [i["attempt"] for i in new.status.get("incidents") or ()]
        if after[: len(before)] != before and len(before) < 20:
            yield f"incidents of attempts {before} became {after}"
        if old.status and not new.status:
            yield f"the status vanished at version {new.version}"


def phases_follow_the_table(facts: Facts) -> Iterator[str]:
    """One machine, one table; terminal is terminal."""
    for old, new in _steps(facts):
        if new.phase != old.phase and new.phase not in _FOLLOWS[old.phase]:
            yield f"{old.phase or 'nothing'} -> {new.phase} at version {new.version}"


def terminal_makes_no_pods(facts: Facts) -> Iterator[str]:
    """After the status that ends a job, no pod of it is created."""
    ended: dict[str, str] = {}
    for event in facts.audit:
        if event.writes_status and (event.request.get("status") or {}).get("phase") in TERMINAL:
            ended.setdefault(_uid_of(facts, event), event.done_at)
    for event in _pods_made(facts):
        uid = event.labels.get(LABEL_JOB_UID, "")
        if uid in ended and event.at > ended[uid]:
            yield f"{_pod_name(event)} was created after the job had ended"


def writes_are_few(facts: Facts) -> Iterator[str]:
    """The write budget of an undisturbed life."""
    if not facts.undisturbed:
        return
    for uid, ledger in facts.ledgers.items():
        writes = sum(e.writes_status and _uid_of(facts, e) == uid for e in facts.audit)
        allowed = LIFE_WRITES + INCIDENT_WRITES * (len(ledger.entries) + ledger.detours)
        if writes > allowed:
            yield f"{writes} status writes, allowed are {allowed}"


def nothing_is_left(facts: Facts) -> Iterator[str]:
    """After deletion, with or without an operator, no object of ours remains."""
    yield from facts.leftovers


def it_converges(facts: Facts) -> Iterator[str]:
    """Whatever was waited for came in time."""
    yield from facts.problems


def the_operator_stays_up(facts: Facts) -> Iterator[str]:
    """It ends only when it is told to."""
    if facts.deserted:
        yield f"the operator ended {facts.deserted} times by itself"


VERDICTS: Final[tuple[Callable[[Facts], Iterator[str]], ...]] = (
    it_converges,
    the_operator_stays_up,
    no_pod_twice,
    only_the_operator_makes_pods,
    deletes_are_guarded,
    plan_comes_first,
    budgets_are_exact,
    ends_as_it_should,
    nothing_is_lost,
    phases_follow_the_table,
    terminal_makes_no_pods,
    writes_are_few,
    nothing_is_left,
)


def _pods_made(facts: Facts) -> Iterator[AuditEvent]:
    return (event for event in facts.audit if event.creates_pod and event.labels.get(LABEL_JOB_UID))


def _incarnation(event: AuditEvent) -> int:
    return int(event.labels.get(LABEL_INCARNATION, "-1"))


def _pod_name(event: AuditEvent) -> str:
    return str((event.response.get("metadata") or {}).get("name") or event.name)


def _last(numbers: dict[int, str]) -> int:
    return max(numbers, default=0)


def _uid_of(facts: Facts, event: AuditEvent) -> str:
    """Which job a status write was about: the write's version is the one that it was decided from."""
    version = int(((event.request.get("metadata") or {}).get("resourceVersion")) or 0)
    named = [state for state in facts.states if state.name == event.name]
    exact = next((s.uid for s in named if s.version == version), "")
    return exact or next((s.uid for s in reversed(named) if s.version <= version), "")


def _by_uid(facts: Facts) -> dict[str, list[JobState]]:
    found: dict[str, list[JobState]] = defaultdict(list)
    for state in facts.states:
        found[state.uid].append(state)
    return found


def _last_states(facts: Facts) -> dict[str, JobState]:
    return {uid: states[-1] for uid, states in _by_uid(facts).items()}


def _steps(facts: Facts) -> Iterator[tuple[JobState, JobState]]:
    for states in _by_uid(facts).values():
        yield from pairwise(states)
