"""What an incident came from, who began it, and what the failure policy makes of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from meshwright.lifecycle.incidents import FREE, PRECEDENCE, culprit_of
from meshwright.lifecycle.model import Identity, Pod, PodState, Rule
from meshwright_api import names
from meshwright_api.status import MAX_INCIDENTS, MAX_LAST_WORDS, Cause, Incident, Phase
from tests.controller.lifecycle.gangs import (
    Scene,
    a_pod,
    a_policy,
    a_running_gang,
    an_open_incident,
    at,
    failed,
    succeeded,
)
from tests.controller.lifecycle.life import a_running_life

STOPPED_AT = 99


def judged(scene: Scene) -> Incident:
    """The verdict that the scene writes."""
    status = scene.status()
    assert status.incident is None
    return status.incidents[-1]


def stopping(pod: Pod, when: float = STOPPED_AT) -> Pod:
    return replace(pod, stop_requested_at=at(when))


# --- opening -----------------------------------------------------------------------------------------------------

FIRST_SIGNS: dict[str, tuple[Pod, Cause]] = {
    "exit code": (failed(a_pod(1), when=90), Cause.EXIT_CODE),
    "out of memory": (failed(a_pod(1), 137, 90, "OOMKilled"), Cause.OUT_OF_MEMORY),
    "eviction": (failed(a_pod(1), 137, 90, "Evicted"), Cause.EVICTED),
    "kubelet": (failed(a_pod(1), 1, 90, "UnexpectedAdmissionError"), Cause.KUBELET_REFUSED),
    "kubelet, out of cpu": (failed(a_pod(1), 1, 90, "OutOfcpu"), Cause.KUBELET_REFUSED),
    "kubelet, shutting down": (failed(a_pod(1), 1, 90, "NodeShutdown"), Cause.KUBELET_REFUSED),
    "kubelet, shut down": (failed(a_pod(1), 143, 90, "Terminated"), Cause.KUBELET_REFUSED),
    "never began": (failed(a_pod(1), 128, 90, "StartError"), Cause.EXIT_CODE),
    "disrupted, exits with 0": (failed(a_pod(1), 0, 90, disruption="TerminationByKubelet"), Cause.DISRUPTED),
    "disruption": (a_pod(1, disruption="PreemptionByScheduler"), Cause.DISRUPTED),
    "disrupted and ended": (failed(a_pod(1), 143, 90, disruption="DeletionByTaintManager"), Cause.DISRUPTED),
    "deleted": (stopping(a_pod(1)), Cause.POD_LOST),
    "deleted and ended": (failed(stopping(a_pod(1)), 143, 100), Cause.POD_LOST),
    "deleted, exits with 0": (succeeded(stopping(a_pod(1)), 100), Cause.POD_LOST),
}


@pytest.mark.parametrize("sign", FIRST_SIGNS)
def test_an_incident_is_opened_on_the_first_sign(sign: str) -> None:
    pod, cause = FIRST_SIGNS[sign]
    status = a_running_gang(pod).status()
    assert status.incident is not None
    assert (status.incident.trigger, status.incident.evidence.pod_uid) == (cause, pod.uid)
    assert (status.phase, status.attempt, status.incarnation) == (Phase.RESTARTING, 2, 1)
    assert (status.incident.attempt, status.incident.opened_at) == (1, at(100))
    assert status.charged_restarts == status.incidents == ()


def test_a_lost_node_opens_an_incident() -> None:
    status = a_running_gang().but(lost_nodes=frozenset({"node-1"})).status()
    assert status.incident is not None
    assert (status.incident.trigger, status.incident.evidence.node) == (Cause.NODE_LOST, "node-1")


def test_another_gangs_lost_node_is_no_sign() -> None:
    assert a_running_gang().but(lost_nodes=frozenset({"node-7"})).decide().status is None


def test_a_missing_pod_is_confirmed_before_it_is_called_lost() -> None:
    scene = a_running_gang().but(pods=(a_pod(0),))
    assert scene.decide().confirm_pods
    assert scene.but(pods_confirmed=True, pods=(a_pod(0), a_pod(1))).decide().status is None
    incident = scene.but(pods_confirmed=True).status().incident
    assert incident is not None
    assert (incident.trigger, incident.evidence.role, incident.evidence.index) == (Cause.POD_LOST, "worker", 1)


def test_before_the_launch_a_missing_pod_is_created_unless_it_was_seen_and_is_gone() -> None:
    scene = a_running_gang(phase=Phase.ADMITTED, launched=0).but(pods=(a_pod(0),))
    assert [action.identity for action in scene.decide().actions] == [Identity("worker", 1, 1)]  # type: ignore[union-attr]
    seen = scene.but(vanished=frozenset({Identity("worker", 1, 1)}))
    assert seen.decide().confirm_pods
    assert seen.but(pods_confirmed=True).status().phase is Phase.RESTARTING


def test_a_vanished_pod_of_an_older_incarnation_says_nothing() -> None:
    scene = a_running_gang(phase=Phase.ADMITTED, launched=0).but(pods=(a_pod(0),))
    old = scene.but(vanished=frozenset({Identity("worker", 1, 0), Identity("worker", 0, 1)}))
    assert not old.decide().confirm_pods
    assert old.decide().actions


def test_pods_of_older_incarnations_open_nothing() -> None:
    old = (failed(a_pod(0, 1), when=90), a_pod(1, 1, disruption="Preempted"))
    scene = a_running_gang(attempt=2).but(pods=(a_pod(0, 2), a_pod(1, 2), *old))
    assert scene.decide().status is None


def test_a_pod_that_failed_because_its_peer_was_deleted_is_not_the_first_sign() -> None:
    incident = a_running_gang(stopping(a_pod(0), 90), failed(a_pod(1), when=92)).status().incident
    assert incident is not None
    assert (incident.trigger, incident.evidence.pod_uid) == (Cause.POD_LOST, "pod-0-1")


def test_a_pod_that_failed_before_its_peer_was_deleted_is_the_first_sign() -> None:
    incident = a_running_gang(stopping(a_pod(0), 90), failed(a_pod(1), when=85)).status().incident
    assert incident is not None
    assert (incident.trigger, incident.evidence.pod_uid) == (Cause.EXIT_CODE, "pod-1-1")


def test_no_incident_is_opened_while_the_job_is_being_suspended() -> None:
    life = a_running_life().change(suspend=True)
    life.settle().fail(0, 143)
    life.settle()
    assert life.status.incident is None
    assert life.stops_end().settle().phase is Phase.SUSPENDED
    assert life.status.incidents == ()


# --- stopping and gathering evidence -------------------------------------------------------------------------------


def test_after_opening_the_others_are_stopped_before_anything_is_judged() -> None:
    scene = an_open_incident(Cause.EXIT_CODE, failed(a_pod(0), when=90), failed(a_pod(0), when=90), a_pod(1))
    actions = scene.decide().actions
    assert [(a.uid, a.grace_seconds) for a in actions] == [("pod-1-1", 30)]  # type: ignore[union-attr]


@pytest.mark.parametrize(("template", "used"), [(5, 5), (300, 30)])
def test_nobody_waits_longer_than_thirty_seconds_for_the_old_processes(template: int, used: int) -> None:
    policy = a_policy()
    policy = replace(policy, roles=(replace(policy.roles[0], grace_seconds=template),))
    scene = an_open_incident(Cause.EXIT_CODE, None, a_pod(1), policy=policy)
    assert [a.grace_seconds for a in scene.decide().actions] == [used]  # type: ignore[union-attr]


def test_evidence_is_awaited_until_all_have_ended() -> None:
    life = a_running_life(evidence_seconds=15)
    life.fail(0).settle()
    assert life.status.incident is not None
    assert life.wake_after == 15
    life.later(4).stops_end().settle()
    assert life.last.judged_at == life.now


def test_or_until_the_time_for_evidence_is_over() -> None:
    """K13: the restart does not wait for grace periods to pass."""
    life = a_running_life(evidence_seconds=15)
    life.fail(0).settle()
    assert life.later(14).settle().status.incident is not None
    assert life.wake_after == 1
    life.later(1).settle()
    assert life.status.incident is None
    assert {identity.incarnation for identity in life.created} == {1, 2}
    assert any(pod.stopping for pod in life.pods.values()), "the old process is still stopping"


def test_the_judgement_is_made_from_a_fresh_list() -> None:
    scene = an_open_incident(Cause.EXIT_CODE, None, failed(a_pod(0), when=90))
    assert scene.but(pods_confirmed=False).decide().confirm_pods
    late = scene.but(pods=(failed(a_pod(0), when=90), a_pod(1)))
    assert late.decide().actions, "a pod that only the fresh list shows is stopped first"


# --- judging -------------------------------------------------------------------------------------------------------

OOM = failed(a_pod(1), 137, 95, "OOMKilled")
PEER = failed(a_pod(0), 1, 90)


def test_the_earliest_end_is_the_culprits() -> None:
    late, early = failed(a_pod(0), 1, 95), failed(a_pod(1), 7, 91)
    incident = judged(an_open_incident(Cause.EXIT_CODE, late, late, early))
    assert (incident.cause, incident.culprit.pod_uid, incident.culprit.exit_code) == (Cause.EXIT_CODE, "pod-1-1", 7)
    assert incident.trigger is Cause.EXIT_CODE


def test_ends_in_the_same_second_go_by_rank() -> None:
    one, two = failed(a_pod(1), 1, 90), failed(a_pod(0), 1, 90)
    assert judged(an_open_incident(Cause.EXIT_CODE, one, one, two)).culprit.pod_uid == "pod-0-1"


def test_of_ends_in_the_same_second_a_killed_process_explains_one_that_gave_up() -> None:
    killed, gave_up = failed(a_pod(1), 137, 90), failed(a_pod(0), 1, 90)
    assert judged(an_open_incident(Cause.EXIT_CODE, gave_up, killed, gave_up)).culprit.pod_uid == "pod-1-1"


def evidence(cause: Cause) -> tuple[dict[str, Any], tuple[Pod, ...]]:
    """What shows a cause, at the pod with index 1."""
    pods: dict[Cause, Pod] = {
        Cause.NODE_LOST: stopping(a_pod(1, node="dead")),
        Cause.DISRUPTED: stopping(a_pod(1, disruption="PreemptionByScheduler")),
        Cause.OUT_OF_MEMORY: OOM,
        Cause.FENCED: failed(a_pod(1), 76, 95),
        Cause.RULE: failed(a_pod(1), 3, 95),
        Cause.KUBELET_REFUSED: failed(a_pod(1), 1, 95, "OutOfmemory"),
        Cause.EVICTED: failed(a_pod(1), 1, 95, "Evicted"),
        Cause.EXIT_CODE: failed(a_pod(1), 1, 95),
    }
    lost = {"lost_nodes": frozenset({"dead"})} if cause is Cause.NODE_LOST else {}
    return lost, (pods[cause],)


SEEN_IN_PODS = PRECEDENCE[:8]


@pytest.mark.parametrize(
    ("stronger", "weaker"),
    [(s, w) for n, s in enumerate(SEEN_IN_PODS) for w in SEEN_IN_PODS[n + 1 :]],
    ids=lambda cause: cause.value,
)
def test_the_cause_that_explains_the_others_comes_first(stronger: Cause, weaker: Cause) -> None:
    """In either order of seeing them, and although the weaker one ended earlier."""
    policy = a_policy(3, rules=(Rule("Restart", exit_codes=(3,)),), agent=True)
    lost, (strong,) = evidence(stronger)
    _, (weak,) = evidence(weaker)
    weak = replace(
        weak, uid="weak", identity=Identity("worker", 2, 1), finished_at=weak.finished_at and at(80), node="node-2"
    )
    for trigger, first in ((stronger, strong), (weaker, weak)):
        scene = an_open_incident(trigger, first, strong, weak, policy=policy, now=200).but(**lost).after(15)
        assert judged(scene).cause is stronger


def test_a_node_that_is_lost_while_evidence_is_gathered_explains_the_exit_of_its_own_pod() -> None:
    scene = an_open_incident(Cause.EXIT_CODE, PEER, PEER).but(lost_nodes=frozenset({"node-0"}))
    assert (judged(scene).cause, judged(scene).charged) == (Cause.NODE_LOST, False)


AFTER_THE_STOP = {
    "by SIGTERM": failed(stopping(a_pod(1)), 143, 100),
    "by SIGKILL": failed(stopping(a_pod(1)), 137, 120),
    "with an error, later": failed(stopping(a_pod(1)), 1, 100),
    "by SIGTERM in the same second": failed(stopping(a_pod(1)), 143, STOPPED_AT),
    "without a time": replace(failed(stopping(a_pod(1)), 1), finished_at=None),
    "matching a rule": failed(stopping(a_pod(1)), 3, 100),
    "out of memory, later": failed(stopping(a_pod(1)), 137, 100, "OOMKilled"),
}


@pytest.mark.parametrize("end", AFTER_THE_STOP)
def test_exits_after_the_stop_are_no_evidence(end: str) -> None:
    policy = a_policy(rules=(Rule("Fail", exit_codes=(3,)),))
    scene = an_open_incident(Cause.EXIT_CODE, PEER, PEER, AFTER_THE_STOP[end], policy=policy, now=200)
    assert judged(scene).culprit.pod_uid == "pod-0-1"
    assert judged(scene).cause is Cause.EXIT_CODE


BEFORE_THE_STOP = {
    "earlier": (failed(stopping(a_pod(1)), 1, 85), Cause.EXIT_CODE),
    "out of memory in the same second": (failed(stopping(a_pod(1)), 137, STOPPED_AT, "OOMKilled"), Cause.OUT_OF_MEMORY),
}


@pytest.mark.parametrize("end", BEFORE_THE_STOP)
def test_exits_before_the_stop_are_evidence(end: str) -> None:
    pod, cause = BEFORE_THE_STOP[end]
    incident = judged(an_open_incident(Cause.EXIT_CODE, PEER, PEER, pod, now=200))
    assert (incident.cause, incident.culprit.pod_uid) == (cause, "pod-1-1")


def test_a_deleted_pod_is_not_explained_by_its_peers_failures() -> None:
    policy = a_policy(rules=(Rule("Fail", exit_codes=(3,)),))
    peer = failed(a_pod(1), 3, 98)
    incident = judged(an_open_incident(Cause.POD_LOST, stopping(a_pod(0), 95), peer, policy=policy))
    assert (incident.cause, incident.charged, incident.culprit.pod_uid) == (Cause.POD_LOST, False, "pod-0-1")


def test_but_an_out_of_memory_kill_explains_it() -> None:
    incident = judged(an_open_incident(Cause.POD_LOST, stopping(a_pod(0), 95), OOM))
    assert (incident.cause, incident.charged) == (Cause.OUT_OF_MEMORY, True)


CHARGED = frozenset({Cause.OUT_OF_MEMORY, Cause.RULE, Cause.EXIT_CODE, Cause.EVICTED, Cause.STARTUP_DEADLINE})


@pytest.mark.parametrize("cause", Cause, ids=lambda cause: cause.value)
def test_what_is_the_jobs_fault_is_charged_and_nothing_else(cause: Cause) -> None:
    """An eviction without DisruptionTarget is for the pod's own limits; with it, it counts as a disruption."""
    policy = a_policy(rules=(Rule("Restart", exit_codes=(3,)),))
    pod = failed(a_pod(0), 3 if cause is Cause.RULE else 1, 90)
    incident = judged(an_open_incident(cause, pod, policy=policy))
    assert (incident.cause, incident.charged) == (cause, cause in CHARGED)
    assert (cause in FREE) is (cause not in CHARGED)
    assert set(PRECEDENCE) == set(Cause)


def test_an_eviction_with_a_disruption_target_is_free() -> None:
    pod = failed(a_pod(0), 137, 90, "Evicted", disruption="TerminationByKubelet")
    life = a_running_life()
    life.becomes(0, state=PodState.FAILED, reason="Evicted", exit_code=137, disruption=pod.disruption).restart()
    assert (life.last.cause, life.last.charged) == (Cause.DISRUPTED, False)
    assert life.last.culprit.reason == "TerminationByKubelet"


# --- rules ---------------------------------------------------------------------------------------------------------

RULES: dict[str, tuple[Rule, Pod, str, bool]] = {
    "code matches": (Rule("RestartFree", exit_codes=(3, 4)), failed(a_pod(0), 4, 90), "RestartFree", False),
    "code differs": (Rule("RestartFree", exit_codes=(3, 4)), failed(a_pod(0), 5, 90), "Restart", True),
    "reason matches": (Rule("Restart", reasons=("Evicted",)), failed(a_pod(0), 1, 90, "Evicted"), "Restart", True),
    "reason makes an eviction free": (
        Rule("RestartFree", reasons=("Evicted",)),
        failed(a_pod(0), 1, 90, "Evicted"),
        "RestartFree",
        False,
    ),
    "reason makes a refusal charged": (
        Rule("Restart", reasons=("OutOfcpu",)),
        failed(a_pod(0), 1, 90, "OutOfcpu"),
        "Restart",
        True,
    ),
    "role matches": (Rule("RestartFree", role="worker"), failed(a_pod(0), 9, 90), "RestartFree", False),
    "role differs": (Rule("RestartFree", role="server"), failed(a_pod(0), 9, 90), "Restart", True),
    "role matches, code differs": (
        Rule("RestartFree", role="worker", exit_codes=(3,)),
        failed(a_pod(0), 9, 90),
        "Restart",
        True,
    ),
    "everything matches": (Rule("RestartFree"), failed(a_pod(0), 9, 90), "RestartFree", False),
}


@pytest.mark.parametrize("case", RULES)
def test_a_rule_speaks_of_the_pods_that_it_names(case: str) -> None:
    rule, pod, action, charged = RULES[case]
    life = a_running_life(rules=(rule,))
    life.fail(0, pod.exit_code or 0, pod.reason).restart()
    assert (life.last.action, life.last.charged) == (action, charged)


def test_the_first_matching_rule_counts() -> None:
    rules = (Rule("RestartFree", exit_codes=(3,)), Rule("Fail"))
    life = a_running_life(rules=rules)
    life.fail(0, 3).restart()
    assert life.last.action == "RestartFree"
    life.fail(0, 4).settle().stops_end().settle()
    assert life.phase is Phase.FAILED


def test_a_rule_that_fails_the_job_says_which_pod_and_which_code() -> None:
    """K02."""
    life = a_running_life(rules=(Rule("Fail", exit_codes=(42,)),))
    life.fail(1, 42).settle().stops_end().settle()
    assert (life.phase, life.status.reason) == (Phase.FAILED, names.REASON_RULE)
    condition = next(c for c in life.status.conditions if c.type == names.FAILED)
    assert "job-worker-1-1" in condition.message
    assert "42" in condition.message
    assert life.status.charged_restarts == ()


@pytest.mark.parametrize("rule", [Rule("Fail"), Rule("Restart")])
def test_no_rule_speaks_of_a_lost_node_or_a_disruption(rule: Rule) -> None:
    life = a_running_life(rules=(rule,))
    life.lose("node-0").settle().later(15).settle()
    assert (life.last.cause, life.last.charged) == (Cause.NODE_LOST, False)
    life = a_running_life(rules=(rule,))
    life.becomes(0, disruption="PreemptionByScheduler").settle().stops_end().settle()
    assert (life.last.cause, life.last.charged) == (Cause.DISRUPTED, False)


# --- what is kept --------------------------------------------------------------------------------------------------


def test_last_words_are_kept_up_to_a_kibibyte_of_their_end() -> None:
    words = "x" * 5000 + "RuntimeError: the end"
    life = a_running_life()
    life.fail(0, last_words=words).restart()
    assert life.last.culprit.last_words == words[-MAX_LAST_WORDS:]
    assert len(life.last.culprit.last_words) == 1024


def test_the_last_twenty_incidents_are_kept() -> None:
    life = a_running_life(max_restarts=100)
    for _ in range(MAX_INCIDENTS + 3):
        life.later(300).fail(0).restart()
    assert len(life.status.incidents) == MAX_INCIDENTS == 20
    assert [incident.attempt for incident in life.status.incidents] == list(range(4, 24))
    assert len(life.status.charged_restarts) == 23, "the budget does not depend on the history"


def test_the_culprits_pod_is_kept_until_the_next_incident_and_the_others_are_removed() -> None:
    life = a_running_life(workers=3)
    life.fail(1).later(1).fail(0).restart()
    first = life.last.culprit.pod_uid
    assert [uid for uid, pod in life.pods.items() if pod.identity.incarnation == 1] == [first]
    life.later(300).fail(2).settle()
    assert first in life.pods, "still there while the next incident is open"
    life.stops_end().settle().start().settle()
    assert first not in life.pods
    assert life.last.culprit.pod_uid in life.pods


def test_a_culprit_remembers_everything_that_its_pod_tells() -> None:
    pod = failed(a_pod(1), 9, 90, "Error", last_words="bye", waiting="")
    culprit = culprit_of(pod)
    assert (culprit.pod, culprit.pod_uid, culprit.role, culprit.index, culprit.node) == (
        "job-worker-1-1",
        "pod-1-1",
        "worker",
        1,
        "node-1",
    )
    assert (culprit.exit_code, culprit.reason, culprit.finished_at, culprit.last_words) == (9, "Error", at(90), "bye")


def test_pods_of_later_incarnations_are_never_deleted() -> None:
    """A leader with an old view of the job may see them."""
    newer = tuple(a_pod(i, 5) for i in (0, 1))
    scenes = [
        a_running_gang().but(pods=(a_pod(0), a_pod(1), *newer)),
        an_open_incident(Cause.EXIT_CODE, None, failed(a_pod(0), when=90), *newer),
    ]
    for scene in scenes:
        assert not [a for a in scene.decide().actions if getattr(a, "uid", "").endswith("-5")]


def test_a_lost_nodes_pods_are_deleted_by_force_only_if_the_policy_says_so() -> None:
    for force in (False, True):
        life = a_running_life(force_delete_on_lost_node=force)
        life.lose("node-1").settle().stops_end().later(15).settle().start().settle()
        left = [pod for pod in life.pods.values() if pod.identity.incarnation == 1]
        assert bool(left) is not force
        assert all(pod.stopping for pod in left)
        assert life.phase is Phase.RUNNING, "the gang goes on elsewhere either way"


def test_a_stopped_pod_whose_node_is_lost_later_is_deleted_by_force_too() -> None:
    life = a_running_life(force_delete_on_lost_node=True)
    life.fail(0).settle().lose("node-1").later(15).settle().start().settle()
    assert {pod.identity.incarnation for pod in life.pods.values() if not pod.ended} == {2}


def test_a_pod_that_even_force_does_not_remove_holds_nothing_up() -> None:
    """A finalizer on it, say."""
    life = a_running_life(force_delete_on_lost_node=True)
    stuck = life.pod(1)
    life.fail(0).settle().lose("node-1")

    def go_on() -> None:
        for _ in range(8):
            life.later(5).step()
            life.pods[stuck.uid] = replace(stuck, stop_requested_at=life.now)

    go_on()
    assert life.phases()[-1] is Phase.STARTING
    life.start()
    go_on()
    assert life.phases()[-1] is Phase.RUNNING
