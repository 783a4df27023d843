"""A user's own image and script, as the example has them, on two real kubelets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.images.build import Images
from tests.system.kubelets.site import SLOT, Site
from tests.system.stage import Json, Stage
from tests.system.training import PATIENCE

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.kubelets]

EXAMPLE = Path(__file__).parents[3] / "examples" / "pytorch-text.yaml"


def the_example(steps: int) -> dict[str, Json]:
    """The example's objects by kind, shortened, in an image that is here, its pods on two nodes."""
    documents: dict[str, Any] = {one["kind"]: one for one in yaml.safe_load_all(EXAMPLE.read_text())}
    spec = documents["TrainingJob"]["spec"]
    container = spec["roles"][0]["template"]["spec"]["containers"][0]
    container["image"] = Images().trainer_reference
    container["args"] += ["--steps", str(steps), "--batch", "8"]
    container["resources"] = {"requests": {"cpu": "300m"}, "limits": {SLOT: "1"}}
    return documents


def test_the_pytorch_example_in_an_image_of_its_own(site: Site, stage: Stage, shared: Path) -> None:
    documents = the_example(steps=8)
    core = f"/api/v1/namespaces/{stage.namespace}"
    site.claim(stage, "pytorch-text", shared)
    stage.cluster.request("POST", f"{core}/configmaps", documents["ConfigMap"])
    job = documents["TrainingJob"]
    job["spec"]["agent"] = "Inject"
    stage.create(job)
    status = stage.wait_phase("pytorch-text", "Succeeded", PATIENCE)
    assert status.get("incidents", []) == []
    pods = stage.gang(1)
    assert {pod["spec"]["nodeName"] for pod in pods} == {"container-1", "container-2"}
    assert list(shared.glob("step-*8.pt")), "the user's script wrote its last checkpoint"
    for pod in pods:
        agents = [one["image"] for one in pod["spec"]["initContainers"]]
        assert agents == [f"meshwright/operator:{Images().operator_reference.rpartition(':')[2]}"]
