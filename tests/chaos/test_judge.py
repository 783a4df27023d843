"""Every verdict can fail: a run that is as it should be is spoiled in one way, and exactly that is said."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.facts import (
    ANNOTATION_PLAN,
    LABEL_INCARNATION,
    LABEL_INDEX,
    LABEL_JOB_UID,
    LABEL_ROLE,
    REFUND_SECONDS,
    AuditEvent,
    Due,
    Facts,
    JobState,
    Ledger,
)
from tests.chaos.judge import VERDICTS, judge

OPERATOR, UID = "system:serviceaccount:a:operator", "job-uid"


def at(second: float) -> str:
    return f"2026-01-01T00:00:{second:09.6f}Z"


def status_write(second: float, version: int, **status: Any) -> AuditEvent:
    request = {"metadata": {"resourceVersion": str(version)}, "status": status}
    return AuditEvent(
        at(second), at(second + 0.01), OPERATOR, "patch", "trainingjobs", "status", "a", "life", 200, request
    )


def pod_made(second: float, index: int, incarnation: int = 1, plan: str = "plan-1", user: str = OPERATOR) -> AuditEvent:
    name = f"life-worker-{index}-{incarnation}"
    labels = {
        LABEL_JOB_UID: UID,
        LABEL_ROLE: "worker",
        LABEL_INDEX: str(index),
        LABEL_INCARNATION: str(incarnation),
    }
    meta = {"name": name, "labels": labels, "annotations": {ANNOTATION_PLAN: plan}}
    return AuditEvent(at(second), at(second + 0.01), user, "create", "pods", "", "a", name, 201, {}, {"metadata": meta})


def pod_deleted(second: float, uid: str = "pod-uid") -> AuditEvent:
    request = {"preconditions": {"uid": uid}} if uid else {}
    return AuditEvent(at(second), at(second), OPERATOR, "delete", "pods", "", "a", "life-worker-0-1", 200, request)


def state(version: int, phase: str, **more: Any) -> JobState:
    return JobState(UID, "life", version, {"phase": phase, **more})


INCIDENT = {"attempt": 1, "charged": True}
MADE = {"attempt": 1, "incarnation": 1, "startTime": "t0"}
AGAIN = MADE | {"attempt": 2, "incarnation": 2, "restarts": 1, "incidents": [INCIDENT], "chargedRestarts": ["t1"]}


def a_good_run() -> Facts:
    """One start, one charged incident, success."""
    ledger = Ledger(succeeds=True)
    ledger.add("exit 1 of 1", charged=True)
    return Facts(
        operator=OPERATOR,
        audit=(
            status_write(1, 1, phase="Admitted", incarnation=1, planSHA256="plan-1"),
            pod_made(2, 0),
            pod_made(2, 1),
            status_write(3, 2, phase="Running"),
            status_write(4, 3, phase="Restarting", attempt=2),
            pod_deleted(5),
            status_write(6, 4, phase="Admitted", incarnation=2, planSHA256="plan-2"),
            pod_made(7, 0, 2, "plan-2"),
            pod_made(7, 1, 2, "plan-2"),
            status_write(8, 5, phase="Running"),
            status_write(9, 6, phase="Succeeded"),
        ),
        states=(
            JobState(UID, "life", 1, {}),
            state(2, "Admitted", **MADE),
            state(3, "Running", **MADE),
            state(4, "Restarting", **(MADE | {"attempt": 2})),
            state(5, "Admitted", **AGAIN),
            state(6, "Running", **AGAIN),
            state(7, "Succeeded", **AGAIN),
        ),
        ledgers={UID: ledger},
        undisturbed=True,
    )


def with_states(facts: Facts, *states: JobState) -> Facts:
    return replace(facts, states=(*facts.states[: -len(states)], *states))


def with_ledger(facts: Facts, **fields: Any) -> Facts:
    ledger = replace(facts.ledgers[UID], **fields)
    return replace(facts, ledgers={UID: ledger})


def plus(*events: AuditEvent) -> Callable[[Facts], Facts]:
    return lambda facts: replace(facts, audit=(*facts.audit, *events))


SPOILED: dict[str, tuple[Callable[[Facts], Facts], str]] = {
    "a pod made again under its identity": (plus(pod_made(8, 0, 2, "plan-2")), "no_pod_twice"),
    "a pod made by an administrator": (plus(pod_made(8, 2, 2, "plan-2", "admin")), "only_the_operator_makes_pods"),
    "a deletion that means whoever has the name": (plus(pod_deleted(8, "")), "deletes_are_guarded"),
    "a pod before its plan is durable": (plus(pod_made(5.5, 2, 2, "plan-2")), "plan_comes_first"),
    "a pod from another plan": (plus(pod_made(8, 2, 2, "plan-x")), "plan_comes_first"),
    "an incident that was charged twice": (
        lambda facts: with_states(facts, state(7, "Succeeded", **(AGAIN | {"chargedRestarts": ["t1", "t2"]}))),
        "budgets_are_exact",
    ),
    "an incident that cost nothing": (
        lambda facts: with_states(facts, state(7, "Succeeded", **(AGAIN | {"chargedRestarts": []}))),
        "budgets_are_exact",
    ),
    "a disruption that nobody caused": (
        lambda facts: with_states(facts, state(7, "Succeeded", **(AGAIN | {"disruptions": ["t1"]}))),
        "budgets_are_exact",
    ),
    "a success that was not noticed": (
        lambda facts: with_states(facts, state(7, "Running", **AGAIN)),
        "ends_as_it_should",
    ),
    "a budget that did not end the job": (lambda facts: with_ledger(facts, max_restarts=0), "ends_as_it_should"),
    "a rule that did not end the job": (lambda facts: with_ledger(facts, fails_by_rule=True), "ends_as_it_should"),
    "an attempt that went back": (
        lambda facts: with_states(facts, state(7, "Succeeded", **(AGAIN | {"attempt": 1}))),
        "nothing_is_lost",
    ),
    "an incident that was forgotten": (
        lambda facts: with_states(facts, state(7, "Succeeded", **(AGAIN | {"incidents": []}))),
        "nothing_is_lost",
    ),
    "a start that moved": (
        lambda facts: with_states(facts, state(7, "Succeeded", **(AGAIN | {"startTime": "t5"}))),
        "nothing_is_lost",
    ),
    "a status that vanished": (
        lambda facts: replace(facts, states=(*facts.states, JobState(UID, "life", 9, {}))),
        "nothing_is_lost",
    ),
    "a job that rose again": (
        lambda facts: replace(facts, states=(*facts.states, state(8, "Running", **AGAIN))),
        "phases_follow_the_table",
    ),
    "a pod after the end": (plus(pod_made(10, 3, 2, "plan-2")), "terminal_makes_no_pods"),
    "too many writes": (
        plus(*(status_write(10 + n / 100, 7, reason=f"{n}") for n in range(9))),
        "writes_are_few",
    ),
    "a Service that stayed": (lambda facts: replace(facts, leftovers=("services life",)), "nothing_is_left"),
    "a wait in vain": (lambda facts: replace(facts, problems=("not in 30 s: settled",)), "it_converges"),
    "an operator that fell over": (lambda facts: replace(facts, deserted=1), "the_operator_stays_up"),
}


def test_a_good_run_is_not_objected_to() -> None:
    assert judge(a_good_run()) == []


@pytest.mark.parametrize("what", SPOILED)
def test_objects_to(what: str) -> None:
    spoil, verdict = SPOILED[what]
    assert verdict in {violation.verdict for violation in judge(spoil(a_good_run()))}


def test_every_verdict_is_shown_to_fail() -> None:
    assert {verdict.__name__ for verdict in VERDICTS} == {verdict for _, verdict in SPOILED.values()}


def test_disturbed_lives_may_write_more() -> None:
    spoil, _ = SPOILED["too many writes"]
    assert judge(replace(spoil(a_good_run()), undisturbed=False)) == []


def test_falsified_reads_excuse_free_incidents_but_no_charged_ones() -> None:
    spoil, _ = SPOILED["a disruption that nobody caused"]
    assert judge(with_ledger(spoil(a_good_run()), slack=1)) == []
    spoil, verdict = SPOILED["an incident that was charged twice"]
    assert {v.verdict for v in judge(with_ledger(spoil(a_good_run()), slack=1))} == {verdict}


def test_the_incident_that_ends_a_job_is_judged_but_is_no_restart() -> None:
    facts = with_ledger(a_good_run(), max_restarts=0, succeeds=False)
    failed = state(7, "Failed", **(AGAIN | {"chargedRestarts": [], "restarts": 1}))
    assert judge(with_states(facts, failed)) == []


def test_a_lost_node_takes_back_every_charge_of_the_two_minutes_before() -> None:
    ledger = Ledger(entries=[Due("exit 1 of 1", charged=True, at=time.monotonic() - REFUND_SECONDS - 1)])
    ledger.add("exit 1 of 0", charged=True)
    ledger.add("exit 1 of all", charged=True)
    ledger.node_lost("loss of node n")
    assert (ledger.charged, ledger.free) == (1, 3)


def test_the_audit_log_is_read_without_dry_runs_and_non_resources() -> None:
    line = (
        b'{"requestReceivedTimestamp":"a","stageTimestamp":"b","user":{"username":"u"},"verb":"create",'
        b'"requestURI":"/api/v1/namespaces/a/pods%s","objectRef":{"resource":"pods","namespace":"a"},'
        b'"responseStatus":{"code":201},"responseObject":{"metadata":{"labels":{"k":"v"}}}}'
    )
    event = AuditEvent.parse(line % b"")
    assert event is not None
    assert event.creates_pod
    assert event.labels == {"k": "v"}
    assert AuditEvent.parse(line % b"?dryRun=All") is None
