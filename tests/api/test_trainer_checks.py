"""What the controller alone can say of a trainer section: sizes that follow from pod templates, and where files lie."""

from __future__ import annotations

from typing import Any

import pytest

from meshwright_api import parse_job, problems, resolve
from meshwright_api.spec import Agent
from meshwright_api.trainer_config import trainer_config
from meshwright_api.trainer_defaults import filled
from tests.api.jobs import Json, a_container, a_job, a_role, a_trained_job, a_trainer

CLAIM = {"name": "ckpt", "mountPath": "/checkpoints", "persistentVolumeClaim": {"claimName": "c"}}


def said(job: Json) -> list[str]:
    return [str(problem) for problem in problems(job["spec"], job["metadata"]["name"])]


def size(role: Json | None = None, **fields: Any) -> tuple[int, int, Json]:
    """Pods, processes in each, and the mesh of a job that can be run."""
    resolved = resolve(parse_job(a_trained_job(role, **fields)).spec)
    assert resolved.trainer is not None
    [only] = resolved.roles
    assert trainer_config(resolved.trainer, only.processes).parallelism.world_size == only.processes
    return only.replicas, only.processes_per_pod, resolved.trainer["parallelism"]


def gpus(count: int, **role: Any) -> Json:
    limits = {"limits": {"nvidia.com/gpu": count}}
    return {"name": "worker", "template": {"spec": {"containers": [{"name": "trainer", "resources": limits}]}}, **role}


class TestSize:
    """mesh product = replicas x processes per pod, and any one of them may be left out."""

    def test_the_mesh_follows(self) -> None:
        assert size(gpus(8, replicas=4), parallelism={"shard": 8})[2]["data"] == 4

    @pytest.mark.parametrize("mesh", [{"data": 32}, {"data": 4, "shard": 8}, {"data": 1, "shard": 32}])
    def test_the_pods_follow(self, mesh: Json) -> None:
        assert size(gpus(8), parallelism=mesh)[:2] == (4, 8)
        assert size({"name": "worker", "processesPerPod": 2}, parallelism=mesh)[:2] == (16, 2)

    def test_the_processes_follow(self) -> None:
        assert size({"name": "worker", "replicas": 2}, parallelism={"data": 8})[:2] == (2, 4)

    def test_one_pod_with_one_process_if_nothing_is_said(self) -> None:
        resolved = resolve(parse_job({**a_job(), "spec": {"trainer": a_trainer()}}).spec)
        assert [(r.name, r.replicas, r.processes_per_pod) for r in resolved.roles] == [("worker", 1, 1)]
        assert resolved.agent is Agent.INJECT

    def test_gpus_are_not_shared_out_by_the_mesh(self) -> None:
        [problem] = said(a_trained_job(gpus(8, replicas=2), parallelism={"data": 8}))
        assert "= 8 ranks, but replicas 2 x processes per pod 8 = 16" in problem

    @pytest.mark.parametrize(
        ("role", "mesh", "parts"),
        [
            ({"name": "w", "replicas": 3}, {"data": 4}, ("data 4", "= 4 ranks", "replicas 3 x processes per pod 1")),
            ({"name": "w", "replicas": 3}, {"shard": 2}, ("data 1", "shard 2", "replicas 3")),
            (gpus(8), {"data": 12}, ("= 12 ranks", "replicas 1 x processes per pod 8 = 8")),
        ],
    )
    def test_disagreement_names_all_three(self, role: Json, mesh: Json, parts: tuple[str, ...]) -> None:
        [problem] = said(a_trained_job(role, parallelism=mesh))
        assert problem.startswith("spec.trainer.parallelism: ")
        assert all(part in problem for part in (*parts, "leave one out"))

    def test_too_many_pods_that_follow_from_the_mesh_are_refused(self) -> None:
        assert "spec.roles: the roles have 25001 replicas in all; at most 25000 are allowed" in said(
            a_trained_job({"name": "worker"}, parallelism={"data": 25_001})
        )

    def test_several_processes_need_the_agent(self) -> None:
        job = a_trained_job(gpus(2))
        assert said(job) == []
        job["spec"]["agent"] = "None"
        assert said(job)[0].startswith("spec.agent: None: only the agent starts 2 processes in each pod")
        job["spec"]["roles"][0]["processesPerPod"] = 1
        assert said(job) == []


class TestAgreement:
    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"batch": {"global": 3, "micro": 1}}, "spec.trainer.batch.global"),
            ({"parallelism": {"shard": 2, "shardStage": 0}}, "spec.trainer.parallelism.shardStage"),
            ({"parallelism": {"shardStage": 3}}, "spec.trainer.parallelism.shard"),
            ({"optimizer": {"betas": [0.9]}}, "spec.trainer.optimizer.betas.1"),
        ],
    )
    def test_parts_that_do_not_fit_are_named(self, fields: Json, field: str) -> None:
        assert [problem.split(": ")[0] for problem in said(a_trained_job(**fields))] == [field]

    def test_filling_what_is_filled_changes_nothing(self) -> None:
        once = filled(a_trainer(code={"configMap": "mine"}, parallelism={"shard": 2}), 4)
        assert filled(once, 4) == once
        assert once["code"] == {"configMap": "mine", "path": "/meshwright/code"}

    def test_null_is_not_given(self) -> None:
        job = a_trained_job(data={"sources": [{"source": "/a", "format": None}]}, batch=None)
        assert said(job) == []


class TestCheckpoints:
    """They must outlive their pod, and every pod must see the same ones."""

    @pytest.mark.parametrize(
        ("volumes", "path"),
        [
            ([CLAIM], "/checkpoints"),
            ([CLAIM], "/checkpoints/run-1"),
            ([CLAIM], "file:///checkpoints/run-1"),
            ([{**CLAIM, "mountPath": "/"}], "/anything"),
            ([{"name": "n", "mountPath": "/checkpoints/", "nfs": {"server": "s", "path": "/"}}], "/checkpoints/x"),
        ],
    )
    def test_a_shared_volume_is_fine(self, volumes: list[Json], path: str) -> None:
        job = a_trained_job(checkpoint={"path": path})
        job["spec"]["volumes"] = volumes
        assert said(job) == []

    @pytest.mark.parametrize(
        ("volume", "path", "says"),
        [
            (CLAIM, "/checkpoint", "under no volume"),
            (CLAIM, "/checkpoints-2", "under no volume"),
            (CLAIM, "checkpoints", "no absolute path"),
            (CLAIM, "s3://bucket/x", "object stores are not part of this version"),
            ({**CLAIM, "readOnly": True}, "/checkpoints", "mounted read-only"),
            ({"name": "m", "mountPath": "/c", "configMap": {"name": "m"}}, "/c", "a configMap, which cannot be"),
            ({"name": "e", "mountPath": "/c", "emptyDir": {}}, "/c", "each of the 2 pods has one"),
            ({"name": "e", "mountPath": "/c", "ephemeral": {}}, "/c", "each of the 2 pods has one"),
        ],
    )
    def test_anything_else_is_refused(self, volume: Json, path: str, says: str) -> None:
        job = a_trained_job(checkpoint={"path": path})
        job["spec"]["volumes"] = [volume]
        [problem] = said(job)
        assert problem.startswith(f"spec.trainer.checkpoint.path: {path} ") or path in problem
        assert says in problem

    def test_one_pod_may_keep_them_for_itself(self) -> None:
        job = a_trained_job({"name": "worker", "replicas": 1}, checkpoint={"path": "/c"})
        job["spec"]["volumes"] = [{"name": "e", "mountPath": "/c", "emptyDir": {}}]
        assert said(job) == []

    def test_the_innermost_volume_counts(self) -> None:
        job = a_trained_job(checkpoint={"path": "/checkpoints/scratch/x"})
        job["spec"]["volumes"] = [CLAIM, {"name": "e", "mountPath": "/checkpoints/scratch", "emptyDir": {}}]
        assert "volume e, an emptyDir" in said(job)[0]

    @pytest.mark.parametrize(("source", "fine"), [({"persistentVolumeClaim": {}}, True), ({"emptyDir": {}}, False)])
    def test_volumes_of_the_template_count_as_well(self, source: Json, fine: bool) -> None:
        mounted = {"name": "trainer", "volumeMounts": [{"name": "v", "mountPath": "/checkpoints"}]}
        role = a_role(pod={"containers": [mounted], "volumes": [{"name": "v", **source}]})
        assert (said(a_trained_job(role, checkpoint={"path": "/checkpoints"})) == []) == fine


class TestTemplate:
    def test_the_trainers_container_is_added_beside_the_users_and_judged(self) -> None:
        role = a_role(pod={"containers": [a_container(name="logs")]})
        [resolved] = resolve(parse_job(a_trained_job(role)).spec).roles
        assert [c["name"] for c in resolved.template["spec"]["containers"]] == ["logs", "trainer"]
        assert resolved.container == 1

    def test_it_has_time_to_write_a_checkpoint(self) -> None:
        for pod, seconds in (({}, 120), ({"terminationGracePeriodSeconds": 7}, 7)):
            [resolved] = resolve(parse_job(a_trained_job(a_role(pod=pod))).spec).roles
            assert resolved.template["spec"]["terminationGracePeriodSeconds"] == seconds

    def test_a_container_of_another_image_keeps_its_own_grace(self) -> None:
        [resolved] = resolve(parse_job(a_job()).spec).roles
        assert "terminationGracePeriodSeconds" not in resolved.template["spec"]
