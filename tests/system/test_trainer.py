"""The built-in trainer in real pods: killed, suspended, resized. The bits must not notice."""

from __future__ import annotations

import json
import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from tests.system.operators import Operator
from tests.system.stage import Json, Stage, eventually
from tests.system.training import PATIENCE, a_section, sha256, undisturbed, write_texts

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

STEPS = 30
SEED = random.SystemRandom().randrange(1 << 30)


@pytest.fixture
def stage(ground: Cluster, hearing: Operator, request: pytest.FixtureRequest) -> Stage:
    name = f"trainer-{abs(hash(request.node.name)) % 10_000}"
    ground.create_namespace(name)
    return Stage(ground, name)


@dataclass
class Run:
    """A job of the trainer on a stage, and the folder that its pods share."""

    stage: Stage
    folder: Path
    name: str
    section: Json

    def create(self, replicas: int) -> None:
        """Creates the job."""
        container = {
            "name": "trainer",
            "env": [{"name": "OMP_NUM_THREADS", "value": "1"}],
            "resources": {"requests": {"cpu": "1"}},
        }
        template = {"spec": {"containers": [container]}}
        volume = {"name": "shared", "mountPath": "/shared", "hostPath": {"path": str(self.folder)}}
        self.stage.create(
            {
                "apiVersion": "meshwright.dev/v1alpha1",
                "kind": "TrainingJob",
                "metadata": {"name": self.name},
                "spec": {
                    "trainer": self.section,
                    "roles": [{"name": "worker", "replicas": replicas, "template": template}],
                    "volumes": [volume],
                    "failurePolicy": {"evidenceSeconds": 1, "maxRestarts": 5},
                },
            }
        )

    def steps(self) -> int:
        """Steps that the newest log of rank 0 speaks of."""
        done = 0
        for pod in self.stage.pods():
            if pod["metadata"]["labels"].get("meshwright.dev/index") == "0":
                log = self.stage.cluster.kubectl(
                    "--namespace", self.stage.namespace, "logs", pod["metadata"]["name"], check=False
                ).stdout
                lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
                done = max([done, *(line["step"] for line in lines if line["event"] == "step")])
        return done

    def wait_step(self, step: int) -> None:
        """Waits until that step was done."""
        eventually(lambda: self.steps() >= step, f"step {step}", PATIENCE)

    def kill(self, index: int, incarnation: int) -> None:
        """SIGKILL for a pod's process; nobody is told."""
        pod = self.stage.gang(incarnation)[index]
        identity = pod["status"]["containerStatuses"][0]["containerID"]
        os.kill(int(identity.removeprefix("process://")), signal.SIGKILL)

    def suspend(self, to: int) -> Json:
        """Suspends the job, gives it another size, resumes it; returns the status as it was suspended."""
        self.stage.change(self.name, suspend=True)
        suspended = self.stage.wait_phase(self.name, "Suspended", PATIENCE)
        roles = self.stage.job(self.name)["spec"]["roles"]
        roles[0]["replicas"] = to
        self.stage.change(self.name, roles=roles)
        self.stage.change(self.name, suspend=False)
        return suspended

    def sha256(self) -> str:
        """Hash of the final weights and optimizer state."""
        return sha256(self.folder / "checkpoints", STEPS)


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """The folder that pods share, with texts in it."""
    write_texts(tmp_path / "shared" / "text")
    return tmp_path / "shared"


def test_a_job_killed_three_times_ends_with_the_bits_of_one_that_was_not(stage: Stage, texts: Path) -> None:
    run = Run(stage, texts, "killed", a_section())
    run.create(replicas=2)
    moments = sorted(random.Random(SEED).sample(range(5, STEPS - 2), 3))
    for attempt, step in enumerate(moments, start=1):
        run.wait_step(step)
        run.kill(index=attempt % 2, incarnation=attempt)
        run.stage.wait_phase("killed", "Running", PATIENCE, attempt=attempt + 1)
    status = run.stage.wait_phase("killed", "Succeeded", PATIENCE)
    assert [incident["culprit"]["index"] for incident in status["incidents"]] == [1, 0, 1], f"killed after {moments}"
    assert status["progress"]["step"] == STEPS
    assert status["checkpoint"]["step"] == STEPS
    assert run.sha256() == undisturbed(texts, run.section, processes=2), f"killed after {moments}"


def test_a_canonical_job_has_the_same_bits_on_two_pods_one_and_two_again(stage: Stage, texts: Path) -> None:
    run = Run(stage, texts, "resized", a_section(determinism="Canonical"))
    run.create(replicas=2)
    run.wait_step(5)
    first = run.suspend(to=1)
    run.wait_step(first["checkpoint"]["step"] + 3)
    second = run.suspend(to=2)
    status = run.stage.wait_phase("resized", "Succeeded", PATIENCE)
    # SIGTERM means a checkpoint, and suspending waits for it: nothing is trained twice.
    kept = [suspended["checkpoint"]["step"] for suspended in (first, second)]
    assert 5 <= kept[0] < kept[1] < STEPS
    assert status.get("incidents", []) == []
    assert status.get("chargedRestarts", []) == []
    assert run.sha256() == undisturbed(texts, run.section, processes=1)
