"""Pods of the built-in trainer, and the agent in pods of either kind."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from meshwright.rendering.gang import RenderSettings, pod_manifest
from meshwright_api.launch_plan import LaunchPlan
from meshwright_api.trainer_config import TrainerConfig
from tests.controller.rendering.jobs import TORCHRUN, a_container, a_job, a_role, a_trained_job, env_of, frozen

SETTINGS = RenderSettings(trainer_image="trainer:1", agent_image="operator:1", heartbeat_url="http://operator:8082")
GPUS = {"name": "worker", "replicas": 2, "gpusPerPod": 4}


def pod_of(job: Any, settings: RenderSettings = SETTINGS, index: int = 0) -> dict[str, Any]:
    return pod_manifest(frozen(job, settings=settings), "worker", index)


def plan_of(job: Any, settings: RenderSettings = SETTINGS) -> LaunchPlan:
    return LaunchPlan.from_json(frozen(job, settings=settings).plan_text)


def paths_of(container: dict[str, Any]) -> dict[str, str]:
    return {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}


class TestBuiltIn:
    def test_the_plan_tells_the_trainer_everything(self) -> None:
        plan = plan_of(a_trained_job(GPUS, parallelism={"shard": 4}))
        assert plan.trainer is not None
        config = TrainerConfig.model_validate(plan.trainer)
        assert (config.parallelism.data, config.parallelism.shard, config.parallelism.shard_stage) == (2, 4, 3)
        assert [(axis.name, axis.size) for axis in plan.mesh if axis.size > 1] == [("data", 2), ("shard", 4)]
        assert plan.world_size == config.parallelism.world_size == 8

    def test_an_image_of_the_users_own_may_hold_the_trainer(self) -> None:
        role = {"name": "worker", "template": {"spec": {"containers": [{"name": "trainer", "image": "mine:1"}]}}}
        [container] = pod_of(a_trained_job(role))["spec"]["containers"]
        assert container["image"] == "mine:1"
        assert container["command"][-3:] == ["-m", "meshwright_trainer", "pod"]

    def test_what_the_template_says_of_its_container_stays(self) -> None:
        container = {"name": "trainer", "env": [{"name": "NCCL_DEBUG", "value": "INFO"}], "workingDir": "/w"}
        role = {"name": "worker", "template": {"spec": {"containers": [container], "nodeSelector": {"a": "b"}}}}
        spec = pod_of(a_trained_job(role))["spec"]
        assert spec["nodeSelector"] == {"a": "b"}
        assert spec["containers"][0]["workingDir"] == "/w"
        assert {"name": "NCCL_DEBUG", "value": "INFO"} in spec["containers"][0]["env"]

    def test_shared_memory_is_large_unless_the_user_mounts_something_else_there(self) -> None:
        assert paths_of(pod_of(a_trained_job())["spec"]["containers"][0])["/dev/shm"] == "meshwright-shm"
        own = {"name": "mine", "mountPath": "/dev/shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
        spec = pod_of(a_trained_job(volumes=[own]))["spec"]
        assert paths_of(spec["containers"][0])["/dev/shm"] == "mine"
        assert "meshwright-shm" not in {volume["name"] for volume in spec["volumes"]}

    def test_it_never_runs_as_root_unless_the_template_says_so(self) -> None:
        assert pod_of(a_trained_job())["spec"]["securityContext"]["runAsNonRoot"] is True
        root = {"name": "worker", "template": {"spec": {"securityContext": {"runAsNonRoot": False}}}}
        assert pod_of(a_trained_job(root))["spec"]["securityContext"]["runAsNonRoot"] is False

    def test_plug_ins_come_from_a_config_map_to_where_the_plan_says(self) -> None:
        job = a_trained_job(code={"configMap": "mine"})
        spec, plan = pod_of(job)["spec"], plan_of(job)
        assert plan.trainer is not None
        volume = paths_of(spec["containers"][0])[plan.trainer["code"]["path"]]
        assert {"name": volume, "configMap": {"name": "mine"}} in spec["volumes"]

    def test_without_the_agent_it_is_started_directly(self) -> None:
        section = {"model": {"factory": "a:b"}, "data": {"factory": "a:b"}, "steps": 1}
        spec = pod_of(a_job({"name": "worker"}, trainer=section, agent="None"))["spec"]
        assert spec["containers"][0]["command"] == ["python", "-m", "meshwright_trainer", "pod"]
        assert "initContainers" not in spec
        assert env_of({"spec": spec})["RANK"] == "0"


class TestAgent:
    def test_it_wraps_the_command_and_leaves_the_rest(self) -> None:
        container = {"args": ["--lr", "1"], "workingDir": "/w"}
        trained = pod_of(a_job(a_role(container=container), agent="Inject"))["spec"]["containers"][0]
        wrapped = ["python3", "/meshwright/agent/agent.pyz", "run", "--", "python", "train.py"]
        assert trained["command"] == wrapped
        assert (trained["args"], trained["workingDir"]) == (["--lr", "1"], "/w")

    def test_it_is_there_before_anything_else_runs(self) -> None:
        role = a_role(initContainers=[a_container("fetch", name="fetch")])
        spec = pod_of(a_job(role, agent="Inject"))["spec"]
        installer, fetch = spec["initContainers"]
        assert installer["image"] == "operator:1"
        assert installer["command"][-2:] == ["install", spec["containers"][0]["command"][1]]
        assert paths_of(installer)["/meshwright/agent"] == paths_of(spec["containers"][0])["/meshwright/agent"]
        assert fetch["command"] == ["fetch"]

    def test_only_the_trained_container_is_wrapped_and_gets_the_token(self) -> None:
        role = a_role()
        role["template"]["spec"]["containers"].append(a_container("tail", name="logs"))
        trained, logs = pod_of(a_job(role, agent="Inject"))["spec"]["containers"]
        assert "/var/run/secrets/meshwright" in paths_of(trained)
        assert "/var/run/secrets/meshwright" not in paths_of(logs)
        assert logs["command"] == ["tail"]

    def test_the_token_is_for_nobody_else(self) -> None:
        spec = pod_of(a_trained_job())["spec"]
        [volume] = [volume for volume in spec["volumes"] if volume["name"] == "meshwright-token"]
        [source] = volume["projected"]["sources"]
        assert source == {"serviceAccountToken": {"audience": "meshwright", "expirationSeconds": 3600, "path": "token"}}

    @pytest.mark.parametrize("role", [a_role(2), a_role(2, gpus_per_pod=4), a_role(2, *TORCHRUN, gpus_per_pod=4)])
    def test_ranks_are_the_agents_to_set(self, role: dict[str, Any]) -> None:
        env = env_of(pod_of(a_job(role, agent="Inject"), index=1))
        assert not {"RANK", "LOCAL_RANK"} & env.keys()
        per_pod = 4 if "gpusPerPod" in role else 1
        assert (env["LOCAL_WORLD_SIZE"], env["WORLD_SIZE"]) == (str(per_pod), str(2 * per_pod))

    def test_it_reports_where_somebody_listens(self) -> None:
        beat = plan_of(a_trained_job()).heartbeat
        assert beat is not None
        assert (beat.url, beat.interval_seconds, beat.timeout_seconds) == ("http://operator:8082", 10, 120)
        assert plan_of(a_trained_job(), replace(SETTINGS, heartbeat_url="")).heartbeat is None

    def test_without_it_nothing_is_added(self) -> None:
        job = a_job(a_role(), agent="None")
        assert pod_of(job) == pod_of(a_job(a_role()))
        assert plan_of(job).heartbeat is None
        assert "meshwright-agent" not in json.dumps(pod_of(job))
