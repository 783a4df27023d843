"""What befalls nodes and storage: a kubelet that stops, a node that is cut off, a volume that is full."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.kubelets.site import Site, a_shared_folder, a_trained_job
from tests.system.stage import Stage, eventually
from tests.system.training import PATIENCE, a_section, sha256, undisturbed

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.kubelets]

STEPS = 36
SECTION = a_section(steps=STEPS, batch={"global": 32, "micro": 4, "sequenceLength": 96}, determinism="Canonical")
FENCED = '"exitCode": 76'


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Hash of the same job's end without faults; in canonical order it is one for any number of pods."""
    return undisturbed(a_shared_folder(tmp_path_factory.mktemp("reference")), SECTION, processes=1)


def test_a_stopped_kubelet(site: Site, stage: Stage, shared: Path, reference: str) -> None:
    lost, kept = site.nodes_by_operator()
    stage.create(a_trained_job("moved", SECTION, site.claim(stage, "shared", shared)))
    stage.wait_progress("moved", 5)
    victim = next(pod for pod in stage.gang(1) if pod["spec"]["nodeName"] == lost.name)
    site.freeze(victim)  # or the gang could be done before anybody has noticed
    lost.kill_kubelet()
    site.set_slots({kept.name: 2})
    try:
        status = stage.wait_phase("moved", "Running", PATIENCE, attempt=2)
        [incident] = status["incidents"]
        assert (incident["cause"], incident["charged"]) == ("NodeLost", False)
        assert (incident["culprit"]["node"], incident["culprit"]["pod"]) == (lost.name, victim["metadata"]["name"])
        assert {pod["spec"]["nodeName"] for pod in stage.gang(2)} == {kept.name}
    finally:
        lost.start_kubelet()
    status = stage.wait_phase("moved", "Succeeded", PATIENCE)
    assert (status["restarts"], status.get("chargedRestarts", []), len(status["disruptions"])) == (1, [], 1)
    assert sha256(shared / "checkpoints", STEPS) == reference
    eventually(lambda: not stage.gang(1), "the kubelet that is back ends the pod that it had", PATIENCE)


def test_a_node_that_is_cut_off_writes_no_more(site: Site, stage: Stage, shared: Path, reference: str) -> None:
    lost, kept = site.nodes_by_operator()
    site.set_slots({lost.name: 1, kept.name: 0})
    stage.create(a_trained_job("lone", SECTION, site.claim(stage, "shared", shared), replicas=1))
    stage.wait_progress("lone", 5)
    [old] = stage.gang(1)
    site.freeze(old)  # or it could be done before anybody has noticed
    lost.cut_off()
    site.set_slots({kept.name: 1})
    try:
        stage.wait_phase("lone", "Running", PATIENCE, attempt=2)
        stage.wait_progress("lone", 9, attempt=2)
        site.freeze(old, thaw=True)
        eventually(lambda: FENCED in lost.pod_log(old), "the old attempt finds that it is fenced", PATIENCE)
        status = stage.wait_phase("lone", "Succeeded", PATIENCE)
    finally:
        lost.connect()
    [incident] = status["incidents"]
    assert (incident["cause"], incident["charged"], incident["culprit"]["node"]) == ("NodeLost", False, lost.name)
    assert sha256(shared / "checkpoints", STEPS) == reference
    eventually(lambda: not stage.gang(1), "the node that is back ends the pod that it had", PATIENCE)


def test_a_full_volume(site: Site, stage: Stage, shared: Path, reference: str) -> None:
    node, _ = site.nodes_by_operator()
    site.set_slots({node.name: 2})
    node.run("sh", "-c", f"cp -r {shared} /run/full && mount -t tmpfs -o size=64m,mode=0777 tmpfs {shared}")
    node.run("sh", "-c", f"cp -r /run/full/text {shared}/")
    stage.create(a_trained_job("full", SECTION, site.claim(stage, "shared", shared), node=node.name))
    stage.wait_progress("full", 5)
    node.run("sh", "-c", f"cat /dev/zero > {shared}/ballast || true")
    eventually(lambda: stage.status("full").get("incidents"), "an incident", PATIENCE)
    node.run("rm", f"{shared}/ballast")
    status = stage.wait_phase("full", "Succeeded", PATIENCE)
    first = status["incidents"][0]
    assert (first["cause"], first["charged"]) == ("ExitCode", True)
    assert "No space left on device" in first["culprit"]["lastWords"]
    assert len(status["chargedRestarts"]) == len(status["incidents"]) == status["restarts"]
    assert sha256(node.path(shared) / "checkpoints", STEPS) == reference
