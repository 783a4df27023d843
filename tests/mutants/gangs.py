"""Faults of gangs, their nodes and their queue, by row of docs/robustness.md."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Edit, Mutant

LIFE: Final = "meshwright/lifecycle"
LIVES: Final = "tests/controller/lifecycle"
PLACES: Final = "tests/controller/placement"
PROJECTION: Final = "meshwright/cluster/projection.py"
HOW_FAR: Final = "tests/controller/cluster/test_projection.py::TestHowFarItIs"

GANG_MUTANTS: Final = (
    Mutant(
        "K07",
        "a disruption counts only while the pod runs",
        (Edit(f"{LIFE}/incidents.py", "    if pod.disruption:\n", "    if pod.disruption and not pod.ended:\n"),),
        (f"{LIVES}/test_faults.py::test_k07_a_preempted_pod_that_was_also_evicted_and_failed_is_a_disruption",),
    ),
    Mutant(
        "K10",
        "a gang may start for ever",
        (Edit(f"{LIFE}/deadlines.py", "if start_up and start_up <= o.now:", "if not o.now:"),),
        (f"{LIVES}/test_deadlines.py::test_pods_that_cannot_even_be_created_miss_the_deadline_too",),
    ),
    Mutant(
        "K13",
        "an incident is judged only when the last pod has ended",
        (Edit(f"{LIFE}/breaking.py", "if running and evidence_until > o.now:", "if running:"),),
        (f"{LIVES}/test_faults.py::test_k13_the_restart_begins_before_every_pod_has_terminated",),
    ),
    Mutant(
        "K16",
        "a gang that never starts costs nothing",
        (
            Edit(
                f"{LIFE}/incidents.py",
                "        Cause.FENCED,\n        Cause.KUBELET_REFUSED,\n        Cause.POD_LOST,",
                "        Cause.FENCED,\n        Cause.STARTUP_DEADLINE,\n        Cause.POD_LOST,",
            ),
        ),
        (f"{LIVES}/test_faults.py::test_k16_an_image_that_cannot_be_pulled_ends_with_its_reason",),
    ),
    Mutant(
        "K18",
        "processes restart by themselves, each when it likes",
        (Edit("meshwright/rendering/environment.py", '"PET_MAX_RESTARTS": "0",', '"PET_MAX_RESTARTS": "3",'),),
        ("tests/controller/rendering/test_world.py::test_torchrun_keeps_our_numbering_and_never_restarts_by_itself",),
    ),
    Mutant(
        "K20",
        "a node that is lost while evidence is gathered explains nothing",
        (
            Edit(
                f"{LIFE}/incidents.py",
                "if incident.evidence.node and incident.evidence.node in o.lost_nodes:",
                "if not o.now:",
            ),
        ),
        (
            f"{LIVES}/test_incidents.py"
            "::test_a_node_that_is_lost_while_evidence_is_gathered_explains_the_exit_of_its_own_pod",
        ),
    ),
    Mutant(
        "K21",
        "nothing is deleted by force, whatever the policy says",
        (
            Edit(
                f"{LIFE}/stopping.py",
                "return policy.force_delete_on_lost_node and pod.node in o.lost_nodes",
                "return False",
            ),
        ),
        (f"{LIVES}/test_incidents.py::test_a_lost_nodes_pods_are_deleted_by_force_only_if_the_policy_says_so",),
    ),
    Mutant(
        "K22",
        "a deleted job waits for pods that a lost node never lets go",
        (Edit(f"{LIFE}/decide.py", "release(o) or stopping.let_go(o)", 'release(o) or Decision(why="deleted")'),),
        (
            f"{LIVES}/test_ending.py"
            "::test_k22_pods_on_a_lost_node_do_not_hold_the_jobs_deletion_up_where_force_is_allowed",
        ),
    ),
    Mutant(
        "K23",
        "exit code 0 on the way down of a node is success",
        (
            Edit(
                PROJECTION,
                '_whole(ended.get("exitCode")) == 0 and not told_to_stop',
                '_whole(ended.get("exitCode")) == 0',
            ),
        ),
        (f"{HOW_FAR}::test_is_judged_by_the_trainer_then_by_the_phase",),
    ),
    Mutant(
        "K24",
        "what the container said hides what the pod ended of",
        (
            Edit(
                PROJECTION,
                '_last_words(failure.get("message"), *_why_waiting(status, state, waits), status.get("message"))',
                '_last_words(failure.get("message") or status.get("message"))',
            ),
        ),
        (f"{HOW_FAR}::test_the_pods_own_reason_comes_before_the_containers",),
    ),
    Mutant(
        "K25",
        "one bad node moves the whole gang",
        (
            Edit(
                "meshwright/placement/solver.py",
                "for member, node in gang.prefer.items() if node not in gang.avoid}",
                "for member, node in gang.prefer.items() if not gang.avoid}",
            ),
        ),
        (f"{PLACES}/test_solver.py::test_only_the_bad_node_is_swapped",),
    ),
    Mutant(
        "K26",
        "an old pod on a dead node stops the clock of pods that cannot be bound",
        (Edit("meshwright/observing.py", "(pod for pod in gang if pod.node not in lost)", "gang"),),
        (
            "tests/controller/test_observing.py"
            "::test_k26_an_old_pod_that_a_lost_node_never_lets_go_does_not_stop_the_clocks",
        ),
    ),
    Mutant(
        "K28",
        "a node that kube-scheduler refuses is tried again",
        (Edit(f"{LIFE}/deadlines.py", "culprit_of(replace(pod, node=pod.pinned))", "culprit_of(replace(pod))"),),
        (
            f"{LIVES}/test_deadlines.py"
            "::test_k28_the_node_of_the_pod_that_the_scheduler_refuses_is_avoided_not_that_of_one_it_has_not_tried",
        ),
    ),
    Mutant(
        "K30",
        "a job that is being deleted is placed again",
        (Edit(f"{LIFE}/admitting.py", "return not o.job.deleting and awaits_plan(o)", "return awaits_plan(o)"),),
        (f"{LIVES}/test_waiting.py::test_a_job_that_is_being_deleted_is_not_placed",),
    ),
    Mutant(
        "K32",
        "a pod that still terminates gives its room back",
        (
            Edit(
                PROJECTION,
                'if not node or phase in ("Succeeded", "Failed"):',
                'if not node or phase in ("Succeeded", "Failed") or "deletionTimestamp" in _map(item.get("metadata")):',
            ),
        ),
        ("tests/controller/cluster/test_projection.py::TestWhatItHolds::test_its_room_until_it_is_gone",),
    ),
    Mutant(
        "K34",
        "room that others give back wakes nobody",
        (Edit("meshwright/gang_queue.py", "if freed != self._ledger.freed:", "if freed is None:"),),
        ("tests/controller/test_gang_queue.py::test_whatever_makes_room_wakes_the_queue_at_once",),
    ),
    Mutant(
        "K37",
        "a gang that was let in does not count for the next one",
        (
            Edit(
                "meshwright/placement/queueing/queue.py",
                "self._becomes(self._snapshot.with_placed(gang, placed))",
                "pass",
            ),
        ),
        (f"{PLACES}/test_queue.py::test_two_gangs_that_fit_alone_but_not_together_never_get_half_each",),
    ),
    Mutant(
        "K41",
        "a gang's own ended pods keep it out for ever where the quota counts them",
        (Edit(f"{LIFE}/admitting.py", "if offer.counts_ended_pods and (", "if offer is None and ("),),
        (
            f"{LIVES}/test_waiting.py"
            "::test_k41_its_own_ended_pods_do_not_keep_it_out_for_ever_where_the_quota_counts_them",
        ),
    ),
    Mutant(
        "K42",
        "what a webhook refuses is seen in the operator's log alone",
        (Edit("meshwright/cluster/errors.py", "return error.status == 400 or (", "return bool() or ("),),
        (
            "tests/controller/test_acting.py"
            "::test_k42_whatever_is_refused_of_what_a_gang_needs_is_said_in_the_servers_words",
        ),
    ),
)
