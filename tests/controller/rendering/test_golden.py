"""Rendered pods, whole. After a change that is meant, `UPDATE_GOLDEN=1 pytest` writes them anew; read the diff."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshwright.rendering.gang import FrozenPlan, RenderSettings, pod_manifest, service_manifest
from tests.controller.rendering.jobs import TORCHRUN, a_container, a_job, a_role, a_trained_job, frozen

GOLDEN = Path(__file__).parent / "golden"


def plain_script() -> list[dict[str, Any]]:
    plan = frozen(a_job(a_role(2)))
    return [service_manifest(plan), plan.plan_config_map(), *(pod_manifest(plan, "worker", i) for i in (0, 1))]


def torchrun_with_8_gpus() -> list[dict[str, Any]]:
    plan = frozen(a_job(a_role(2, *TORCHRUN, gpus_per_pod=8)), attempt=4, incarnation=3)
    return [pod_manifest(plan, "worker", 1)]


def own_affinity_with_two_terms() -> list[dict[str, Any]]:
    in_zone = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
    fast = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-7"]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [in_zone, fast]},
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": in_zone}],
        },
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []},
    }
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    plan = frozen(a_job(a_role(2, affinity=affinity, tolerations=tolerations, nodeSelector={"pool": "gpu"})))
    return [pod_manifest(plan, "worker", 1)]


def init_container_and_volumes() -> list[dict[str, Any]]:
    mounts = [{"name": "scratch", "mountPath": "/scratch"}]
    role = a_role(
        1,
        "sh",
        "-c",
        "python train.py --rank $(RANK)",
        container={
            "env": [{"name": "OUT", "value": "/scratch/$(RANK)"}, {"name": "PYTHONUNBUFFERED", "value": "0"}],
            "volumeMounts": mounts,
            "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}},
        },
        metadata={"labels": {"team": "vision"}, "annotations": {"note": "{index} stays as it is"}},
        initContainers=[a_container("fetch", name="fetch", volumeMounts=mounts)],
        volumes=[{"name": "scratch", "emptyDir": {}}],
        serviceAccountName="trainer",
        hostNetwork=True,
    )
    nfs = {"server": "h", "path": "/"}
    volumes = [
        {"name": "ckpt", "mountPath": "/checkpoints", "persistentVolumeClaim": {"claimName": "c"}},
        {"name": "data", "mountPath": "/data", "subPath": "text", "readOnly": True, "nfs": nfs},
    ]
    job = a_job(role, volumes=volumes, queue={"priorityClassName": "training"})
    return [pod_manifest(frozen(job, settings=RenderSettings(run_as_non_root=True)), "worker", 0)]


def a_master_its_workers_and_a_sidecar() -> list[dict[str, Any]]:
    sidecar = a_container("tail", name="logs")
    master = a_role(1, name="master", processes_per_pod=2)
    worker = a_role(3)
    worker["template"]["spec"]["containers"].insert(0, sidecar)
    plan = frozen(a_job(master, worker), pinned=False)
    return [pod_manifest(plan, "worker", 2)]


AGENTS = RenderSettings(
    trainer_image="meshwright/trainer:1",
    agent_image="meshwright/operator:1",
    heartbeat_url="http://meshwright-operator-heartbeat.meshwright.svc:8082",
)


def built_in_trainer_in_one_pod() -> list[dict[str, Any]]:
    plan = frozen(a_trained_job(), settings=AGENTS)
    return [plan.plan_config_map(), pod_manifest(plan, "worker", 0)]


def built_in_trainer_in_two_pods_of_four_gpus() -> list[dict[str, Any]]:
    claim = {"name": "ckpt", "mountPath": "/checkpoints", "persistentVolumeClaim": {"claimName": "c"}}
    trainer = {
        "parallelism": {"shard": 4},
        "precision": "BF16",
        "code": {"configMap": "my-model"},
        "checkpoint": {"path": "/checkpoints", "everySteps": 5},
    }
    role = {"name": "worker", "replicas": 2, "gpusPerPod": 4}
    plan = frozen(a_trained_job(role, volumes=[claim], **trainer), attempt=2, incarnation=2, settings=AGENTS)
    return [plan.plan_config_map(), pod_manifest(plan, "worker", 1)]


def own_image_wrapped_by_the_agent() -> list[dict[str, Any]]:
    init = a_container("fetch", name="fetch")
    role = a_role(2, container={"args": ["--out", "/out"]}, initContainers=[init])
    plan = frozen(a_job(role, agent="Inject"), settings=AGENTS)
    return [plan.plan_config_map(), pod_manifest(plan, "worker", 1)]


CASES = [
    built_in_trainer_in_one_pod,
    built_in_trainer_in_two_pods_of_four_gpus,
    own_image_wrapped_by_the_agent,
    plain_script,
    torchrun_with_8_gpus,
    own_affinity_with_two_terms,
    init_container_and_volumes,
    a_master_its_workers_and_a_sidecar,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_manifests_are_exactly_these(case: Any) -> None:
    path = GOLDEN / f"{case.__name__}.yaml"
    text = yaml.safe_dump_all(_without_hash(case()), sort_keys=False, width=120)
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


def _without_hash(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The hash changes with every byte of the plan, which would hide what else did."""
    for manifest in manifests:
        annotations = manifest["metadata"].get("annotations", {})
        if "meshwright.dev/plan-sha256" in annotations:
            assert len(annotations["meshwright.dev/plan-sha256"]) == 64
            annotations["meshwright.dev/plan-sha256"] = "HASH"
    return manifests


def test_what_an_older_version_stored_still_makes_the_same_pods() -> None:
    """The format of the stored plan is a contract with every version that is yet to come."""
    stored, pods = GOLDEN / "stored_plan.v1.yaml", GOLDEN / "stored_plan.v1.pods.yaml"
    if os.environ.get("UPDATE_GOLDEN") and not stored.exists():
        plan = frozen(a_job(a_role(2, *TORCHRUN, gpus_per_pod=8), a_role(1, name="ps")), attempt=4, incarnation=3)
        stored.write_text(yaml.safe_dump_all([plan.plan_config_map(), plan.placement_config_map()], sort_keys=False))
        pods.write_text(yaml.safe_dump_all([pod_manifest(plan, *member) for member in plan.members], sort_keys=False))
    plan = FrozenPlan.load(*yaml.safe_load_all(stored.read_text()))
    assert [pod_manifest(plan, *member) for member in plan.members] == list(yaml.safe_load_all(pods.read_text()))
