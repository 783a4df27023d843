"""Faults of names, objects, networks and environments, by row of docs/robustness.md."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Edit, Mutant

LIFE: Final = "meshwright/lifecycle"
LIVES: Final = "tests/controller/lifecycle"
RENDERING: Final = "tests/controller/rendering"
PROJECTION: Final = "meshwright/cluster/projection.py"

OBJECT_MUTANTS: Final = (
    Mutant(
        "K45",
        "a mesh of another size than the gang is let in",
        (Edit("meshwright_api/trainer_config.py", "if mesh.world_size != world_size:", "if world_size < 0:"),),
        ("tests/api/test_trainer_checks.py::TestSize::test_disagreement_names_all_three",),
    ),
    Mutant(
        "K46",
        "a job that is resumed goes on waiting",
        (
            Edit(
                f"{LIFE}/admitting.py",
                "None, Phase.PENDING, Phase.SUSPENDED, Phase.RESTARTING",
                "None, Phase.PENDING, Phase.RESTARTING",
            ),
        ),
        (f"{LIVES}/test_suspending.py::test_the_phase_of_a_resumed_job_is_what_it_does",),
    ),
    Mutant(
        "K47",
        "a patch says again what stays",
        (Edit("meshwright/status_patch.py", "elif key not in old or before != value:", "else:"),),
        ("tests/controller/test_status_patch.py::test_nothing_changed_is_an_empty_patch",),
    ),
    Mutant(
        "K64",
        "places are kept as they are, not zipped",
        (
            Edit(
                "meshwright/rendering/frozen.py",
                "gzip.compress(self.placement_text.encode(), mtime=0)",
                "gzip.compress(self.placement_text.encode(), 0, mtime=0)",
            ),
        ),
        (f"{RENDERING}/test_frozen.py::test_no_map_outgrows_its_limit_at_25000_pods",),
    ),
    Mutant(
        "K65",
        "a job that is resumed uses its numbers again",
        (Edit(f"{LIFE}/admitting.py", "return status.incarnation + 1", "return status.incarnation or 1"),),
        (f"{LIVES}/test_suspending.py::test_a_resumed_job_runs_again_under_new_numbers_and_free_of_charge",),
    ),
    Mutant(
        "K69",
        "letting a job go takes everybody's finalizers",
        (
            Edit(
                "meshwright/relying.py",
                "tuple(word for word in meta.finalizers if word != names.FINALIZER)",
                "()",
            ),
        ),
        ("tests/controller/test_acting.py::test_compute_domains_are_released_with_the_finalizer_and_nobody_elses",),
    ),
    Mutant(
        "K70",
        "the CRD goes with the chart",
        (Edit("meshwright_api/crd/definition.py", '"annotations": {"helm.sh/resource-policy": "keep"},', ""),),
        ("tests/charts/test_chart.py::test_the_crd_and_its_policies_arrive_unchanged",),
    ),
    Mutant(
        "K72",
        "a pod has no address by name until it is ready",
        (
            Edit(
                "meshwright/rendering/objects.py",
                '"publishNotReadyAddresses": True,',
                '"publishNotReadyAddresses": False,',
            ),
        ),
        (
            f"{RENDERING}/test_frozen.py"
            "::test_the_service_is_the_same_for_every_incarnation_and_finds_pods_before_they_are_ready",
        ),
    ),
    Mutant(
        "K74",
        "pods are no hosts of the gang's Service",
        (Edit("meshwright/rendering/pod.py", '"subdomain": world.gang,', '"subdomain": world.metadata.name,'),),
        (f"{RENDERING}/test_pod.py::test_a_pod_is_found_owned_and_named_by_its_job",),
    ),
    Mutant(
        "K76",
        "rank 0 may end unnoticed",
        (
            Edit(
                f"{LIFE}/incidents.py",
                "elif cause := cause_of(pod, policy):",
                "elif pod.identity.index and (cause := cause_of(pod, policy)):",
            ),
        ),
        (f"{LIVES}/test_faults.py::test_k17_losing_rank_0_restarts_the_job_and_frees_everything",),
    ),
    Mutant(
        "K80",
        "a rendezvous waits for more pods than there are",
        (
            Edit(
                "meshwright/rendering/environment.py",
                '"PET_NNODES": str(world.pods),',
                '"PET_NNODES": f"1:{world.pods}",',
            ),
        ),
        (f"{RENDERING}/test_world.py::test_where_a_process_stands",),
    ),
    Mutant(
        "K84",
        "two gangs on one node listen at the same ports",
        (
            Edit(
                "meshwright/rendering/fabric/ports.py",
                "if not any(wanted.start < other.stop and other.start < wanted.stop for other in others):",
                "if wanted:",
            ),
        ),
        (f"{RENDERING}/test_host_ports.py::test_two_gangs_that_would_begin_at_one_port_get_different_ones",),
    ),
    Mutant(
        "K85",
        "a sidecar that runs on keeps the pod's room for ever",
        (Edit(PROJECTION, "lingers=bool(ended) and _others_run(status, judged),", "lingers=False,"),),
        (
            "tests/controller/cluster/test_projection.py::TestHowFarItIs"
            "::test_a_sidecar_that_runs_on_keeps_the_room_of_a_pod_that_has_ended",
        ),
    ),
    Mutant(
        "K86",
        "a ComputeDomain goes before its pods",
        (
            Edit(
                f"{LIFE}/releasing.py",
                "    if running:\n        return _stop(o, running)",
                "    if not o.now:\n        return _stop(o, running)",
            ),
        ),
        (f"{LIVES}/test_releasing.py::test_pods_of_a_deleted_job_are_stopped_first_each_with_its_grace",),
    ),
    Mutant(
        "K87",
        "each node of a clique has a ComputeDomain of its own",
        (
            Edit(
                "meshwright/rendering/fabric/domains.py",
                "{member: by_clique[cliques[node]] for member, node in nodes.items() if node in cliques}",
                "{member: names.compute_domain_name(job.name, job.uid, node) for member, node in nodes.items()"
                " if node in cliques}",
            ),
        ),
        (f"{RENDERING}/test_fabric.py::test_pods_of_one_nvlink_domain_share_a_compute_domain_and_others_do_not",),
    ),
)
