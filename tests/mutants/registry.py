"""The faults that are put in, by row of docs/robustness.md."""

from __future__ import annotations

from typing import Final

from tests.mutants.gangs import GANG_MUTANTS
from tests.mutants.objects import OBJECT_MUTANTS
from tests.mutants.runner import Edit, Mutant
from tests.mutants.state import STATE_MUTANTS
from tests.mutants.trainer import TRAINER_MUTANTS

LIFE: Final = "meshwright/lifecycle"
RESTARTS: Final = "tests/system/test_restarts.py"
OBJECTS: Final = "tests/system/test_objects.py"

MUTANTS: Final = (
    Mutant(
        "K01",
        "restarts are not counted",
        (Edit(f"{LIFE}/breaking.py", "(*charged, o.now) if verdict.charged else charged", "charged"),),
        (f"{RESTARTS}::test_k01_every_restart_is_counted_however_often_pods_are_made_anew",),
    ),
    Mutant(
        "K02",
        "an exit code that a rule calls permanent is retried",
        (Edit(f"{LIFE}/breaking.py", 'if verdict.action == "Fail":', 'if verdict.action == "Never":'),),
        (f"{RESTARTS}::test_k02_a_permanent_exit_code_fails_the_job_and_says_so",),
    ),
    Mutant(
        "K03",
        "the count is kept by the process, not in the status",
        (
            Edit(
                "meshwright/status_patch.py",
                'mode="json", by_alias=True, exclude_defaults=True',
                'mode="json", by_alias=True, exclude_defaults=True, exclude={"charged_restarts"}',
            ),
        ),
        (f"{RESTARTS}::test_k03_the_budget_survives_the_operators_death_between_increments",),
    ),
    Mutant(
        "K04",
        "the limit is passed by one",
        (
            Edit(
                f"{LIFE}/breaking.py",
                "restarts_left(status.charged_restarts, policy, o.now) <= 0",
                "restarts_left(status.charged_restarts, policy, o.now) < 0",
            ),
        ),
        (f"{RESTARTS}::test_k04_no_restart_at_all_is_a_budget_too",),
    ),
    Mutant(
        "K05",
        "every pod that fails is a restart of its own",
        (
            Edit(
                f"{LIFE}/breaking.py",
                "(*charged, o.now) if verdict.charged else charged",
                "(*charged, *(o.now for pod in o.pods if pod.ended)) if verdict.charged else charged",
            ),
        ),
        (f"{RESTARTS}::test_k05_one_incident_is_one_restart_however_many_pods_fail",),
    ),
    Mutant(
        "K06",
        "pods of the last incarnation, which we stop, open incidents",
        (
            Edit(
                f"{LIFE}/incidents.py",
                "if pod.identity.incarnation == o.status.incarnation)",
                "if pod.identity.incarnation <= o.status.incarnation)",
            ),
        ),
        (f"{RESTARTS}::test_k06_our_own_deletions_start_no_restart",),
    ),
    Mutant(
        "K08",
        "one pod that succeeded finishes the job before the other's failure is looked at",
        (Edit(f"{LIFE}/ending.py", "if not done >= needed(policy):", "if not done & needed(policy):"),),
        (f"{RESTARTS}::test_k08_what_happened_while_the_operator_was_down_is_judged_by_what_is_there",),
    ),
    Mutant(
        "K12",
        "a deleted pod is no incident",
        (
            Edit(f"{LIFE}/incidents.py", "if not (launched or seen):", "if True:"),
            Edit(
                f"{LIFE}/incidents.py",
                "if deleted and (suspect is None or",
                "if False and deleted and (suspect is None or",
            ),
        ),
        (f"{RESTARTS}::test_k12_a_deleted_pod_restarts_the_whole_gang",),
    ),
    Mutant(
        "K43",
        "no replicas are taken for one",
        (Edit("meshwright_api/resolve.py", "wanted if wanted is not None else _pods_for", "wanted or _pods_for"),),
        (f"{OBJECTS}::test_k43_no_replicas_means_no_pods",),
    ),
    Mutant(
        "K48",
        "a job whose pods are gone begins again although it has ended",
        (
            Edit(f"{LIFE}/decide.py", "if o.status.phase in TERMINAL:", "if o.status.phase in TERMINAL and o.pods:"),
            Edit(
                f"{LIFE}/admitting.py",
                "Phase.SUSPENDED, Phase.RESTARTING})",
                "Phase.SUSPENDED, Phase.RESTARTING, Phase.SUCCEEDED, Phase.FAILED})",
            ),
            Edit(f"{LIFE}/phases.py", "if new != old and new not in TRANSITIONS[old]:", "if False:"),
        ),
        (f"{OBJECTS}::test_k48_terminal_is_terminal_whatever_happens_to_the_pods",),
    ),
    Mutant(
        "K50",
        "pods are a job's by its name, not by its UID",
        (
            Edit("meshwright/observing.py", "pods.gang(job.uid)", "pods.gang(job.name)"),
            Edit("meshwright/cluster/projection.py", "    uid = sys.intern(uid)\n", "    uid = sys.intern(job)\n"),
        ),
        (f"{OBJECTS}::test_k50_a_job_made_again_under_its_name_is_another_job",),
    ),
    Mutant(
        "K51",
        "a pod whose name is taken is made under another",
        (
            Edit(
                "meshwright/acting.py",
                '        await _adopt(api, known, manifest["metadata"]["name"])\n        return\n',
                '        manifest["metadata"]["name"] += "0"\n'
                "        answer = await api.create(PODS, known.metadata.namespace, manifest)\n",
            ),
        ),
        ("tests/controller/test_acting.py::test_k51_k52_a_pod_that_exists_already_is_taken_and_never_made_twice",),
    ),
    Mutant(
        "K52",
        "a pod that exists already is an error",
        (
            Edit(
                "meshwright/acting.py",
                '        await _adopt(api, known, manifest["metadata"]["name"])\n        return\n',
                "        raise\n",
            ),
        ),
        ("tests/controller/test_acting.py::test_k51_k52_a_pod_that_exists_already_is_taken_and_never_made_twice",),
    ),
    Mutant(
        "K54",
        "a name too long for the pods is accepted by the controller",
        (
            Edit(
                "meshwright_api/checks/semantics.py",
                'NAME_OVERHEAD = len("-12345")',
                'NAME_OVERHEAD = -999 + len("-12345")',
            ),
        ),
        ("tests/api/test_parse.py::TestNames",),
    ),
    Mutant(
        "K55",
        "only the first index of a role is thought of",
        (Edit("meshwright_api/checks/semantics.py", "len(str(max(r.replicas, 1) - 1))", 'len("0")'),),
        ("tests/api/test_parse.py::TestNames",),
    ),
    Mutant(
        "K81",
        "WORLD_SIZE counts pods",
        (
            Edit(
                "meshwright/rendering/world.py",
                "return sum(role.processes for role in self.roles)",
                "return sum(role.replicas for role in self.roles)",
            ),
        ),
        ("tests/controller/rendering/test_world.py",),
    ),
    *GANG_MUTANTS,
    *OBJECT_MUTANTS,
    *TRAINER_MUTANTS,
    *STATE_MUTANTS,
)
