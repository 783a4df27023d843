"""Two pods on two real kubelets train over the pod network, and what befalls them does not move the bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.kubelets.site import Site, a_shared_folder, a_trained_job
from tests.system.stage import Json, Stage
from tests.system.training import PATIENCE, a_section, sha256, undisturbed

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.kubelets]

STEPS = 48
SECTION = a_section(steps=STEPS, batch={"global": 32, "micro": 4, "sequenceLength": 96})
_EATER = """
import os
for name in os.listdir("/proc"):
    if name.isdigit() and int(name) != os.getpid():
        open(f"/proc/{name}/oom_score_adj", "w").write("1000")
kept = []
while True:
    kept.append(bytearray(32 << 20))
"""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Hash of the final state of the same job without Kubernetes and without faults."""
    return undisturbed(a_shared_folder(tmp_path_factory.mktemp("reference")), SECTION, processes=2)


def restarted(stage: Stage, name: str, attempt: int, steps: int) -> Json:
    """Waits until that attempt has done so many steps more than it resumed from; returns the status."""
    stage.wait_phase(name, "Running", PATIENCE, attempt=attempt)
    return stage.wait_progress(name, steps, attempt)


def test_faults_of_processes_and_pods(site: Site, stage: Stage, shared: Path, reference: str) -> None:
    uid = stage.create(a_trained_job("gpt", SECTION, site.claim(stage, "shared", shared)))
    stage.wait_progress("gpt", 6)
    first = stage.gang(1)
    assert {pod["spec"]["nodeName"] for pod in first} == {"container-1", "container-2"}
    site.kill_rank(first[1])
    restarted(stage, "gpt", 2, 14)
    stage.delete_pod(stage.gang(2)[0])
    restarted(stage, "gpt", 3, 22)
    site.kill_container(site.operator_pod(), "operator")
    victim = stage.gang(3)[1]["metadata"]["name"]
    stage.cluster.kubectl("--namespace", stage.namespace, "exec", victim, "--", "python", "-c", _EATER, check=False)
    restarted(stage, "gpt", 4, 30)
    status = stage.wait_phase("gpt", "Succeeded", PATIENCE)
    told = [(one["cause"], one["charged"], one["culprit"]["index"]) for one in status["incidents"]]
    assert told == [("ExitCode", True, 1), ("PodLost", False, 0), ("OutOfMemory", True, 1)]
    assert [one["culprit"].get("exitCode") for one in status["incidents"]] == [137, None, 137]
    assert (status["restarts"], len(status["chargedRestarts"]), len(status["disruptions"])) == (3, 2, 1)
    assert len(stage.creates(uid)) == len(set(stage.creates(uid))) == 8
    assert status["imageID"].startswith("sha256:")
    assert sha256(shared / "checkpoints", STEPS) == reference
