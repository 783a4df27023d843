"""What each preset makes of a job, whole. After a change that is meant, `UPDATE_GOLDEN=1 pytest`; read the diff."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshwright.rendering.gang import pod_manifest
from meshwright_api.job import TrainingJob
from tests.controller.rendering.fabrics import WRITTEN, a_profile, frozen_with
from tests.controller.rendering.jobs import TORCHRUN, a_job, a_role, a_trained_job

GOLDEN = Path(__file__).parent / "golden" / "fabric"


def built_in() -> TrainingJob:
    return a_trained_job({"name": "worker", "replicas": 2, "gpusPerPod": 8}, parallelism={"shard": 8})


def own_template() -> TrainingJob:
    env = [{"name": "NCCL_DEBUG", "value": "INFO"}, {"name": "NCCL_SOCKET_IFNAME", "value": "bond0"}]
    limits = {"limits": {"memory": "256Gi"}}
    return a_job(a_role(2, *TORCHRUN, gpus_per_pod=8, container={"env": env, "resources": limits}))


@pytest.mark.parametrize("job", [built_in, own_template], ids=lambda job: job.__name__)
@pytest.mark.parametrize("preset", WRITTEN)
def test_a_preset_renders_exactly_this(preset: str, job: Any) -> None:
    plan = frozen_with(job(), a_profile(preset), trainer_image="trainer:1", agent_image="operator:1", isolate=False)
    pod = pod_manifest(plan, "worker", 1)
    assert len(pod["metadata"]["annotations"].pop("meshwright.dev/plan-sha256")) == 64
    text = yaml.safe_dump_all([*plan.objects, pod], sort_keys=False, width=120)
    path = GOLDEN / f"{preset}_{job.__name__}.yaml"
    if os.environ.get("UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()
