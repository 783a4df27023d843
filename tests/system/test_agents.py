"""Agents in pods that run as real processes: what they report is in the status, and a stop reaches what they run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import Cluster
from tests.system.operators import Operator
from tests.system.stage import Json, Stage, a_job

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

REPORTING = """
import json, os, signal, socket, sys, time
out = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
step = int(os.environ["FIRST_STEP"])
while not os.path.exists("/shared/enough"):
    step += 1
    said = {"step": step, "steps": 1000, "loss": 1 / step, "tokensPerSecond": 5, "etaSeconds": 9}
    said["checkpoint"] = {"step": 100, "time": time.time()}
    out.sendto(json.dumps(said).encode(), os.environ["MESHWRIGHT_AGENT_SOCKET"])
    print("rank", os.environ["RANK"], "of", os.environ["WORLD_SIZE"], "step", step, flush=True)
    if os.path.exists("/shared/break-" + os.environ["RANK"]):
        sys.exit(int(open("/shared/break-" + os.environ["RANK"]).read()))
    time.sleep(0.2)
"""


@pytest.fixture
def stage(ground: Cluster, hearing: Operator, request: pytest.FixtureRequest) -> Stage:
    name = f"agents-{abs(hash(request.node.name)) % 10_000}"
    ground.create_namespace(name)
    return Stage(ground, name)


def a_reporting_job(name: str, shared: Path, **spec: Any) -> Json:
    container = {
        "name": "trainer",
        "image": "none",
        "command": ["python", "-c", REPORTING],
        "env": [{"name": "FIRST_STEP", "value": "100"}],
    }
    volume = {"name": "shared", "mountPath": "/shared", "hostPath": {"path": str(shared)}}
    return a_job(name, template={"spec": {"containers": [container]}}, agent="Inject", volumes=[volume], **spec)


def test_what_the_processes_say_is_in_the_status(stage: Stage, tmp_path: Path) -> None:
    stage.create(a_reporting_job("own", tmp_path))
    first = stage.wait_progress("own", 101)
    assert first["progress"]["attempt"] == 1
    assert first["progress"]["totalSteps"] == 1000
    assert first["progress"]["tokensPerSecond"] == 5
    assert first["checkpoint"]["step"] == 100
    stage.wait_progress("own", first["progress"]["step"] + 1)
    (tmp_path / "enough").touch()
    stage.wait_phase("own", "Succeeded")


def test_an_incident_says_how_far_it_was_and_from_where_it_went_on(stage: Stage, tmp_path: Path) -> None:
    stage.create(a_reporting_job("broken", tmp_path))
    stage.wait_progress("broken", 101)
    (tmp_path / "break-1").write_text("9")
    stage.wait_phase("broken", "Restarting")
    (tmp_path / "break-1").unlink()
    stage.wait_phase("broken", "Running", attempt=2)
    stage.wait_progress("broken", 101, attempt=2)
    [incident] = stage.status("broken")["incidents"]
    assert (incident["culprit"]["exitCode"], incident["charged"]) == (9, True)
    assert incident["stepReached"] > 100
    assert incident["stepResumed"] == 100
    (tmp_path / "enough").touch()
    stage.wait_phase("broken", "Succeeded")


def test_suspending_judges_nothing(stage: Stage, tmp_path: Path) -> None:
    stage.create(a_reporting_job("paused", tmp_path))
    stage.wait_progress("paused", 101)
    stage.change("paused", suspend=True)
    status = stage.wait_phase("paused", "Suspended")
    assert status.get("incidents", []) == []
    assert stage.pods() == []
    stage.change("paused", suspend=False)
    stage.wait_progress("paused", 101, attempt=2)
    (tmp_path / "enough").touch()
    status = stage.wait_phase("paused", "Succeeded")
    assert status.get("restarts", 0) == 0


def a_trained_job(name: str, checkpoints: Path, **trainer: Any) -> Json:
    container = {"name": "trainer", "env": [{"name": "OMP_NUM_THREADS", "value": "1"}]}
    role = {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}
    section = {
        "model": {"name": "gpt3", "preset": "tiny"},
        "data": {"source": "builtin:stdlib"},
        "batch": {"global": 4, "micro": 1, "sequenceLength": 32},
        "checkpoint": {"path": "/checkpoints", "everySteps": 100_000},
        "logging": {"everySteps": 1},
        "steps": 100_000,
        **trainer,
    }
    volume = {"name": "checkpoints", "mountPath": "/checkpoints", "hostPath": {"path": str(checkpoints)}}
    return a_job(name, roles=[role], trainer=section, volumes=[volume])


def test_the_built_in_trainer_is_suspended_made_smaller_and_resumed_without_losing_a_step(
    stage: Stage, tmp_path: Path
) -> None:
    job = a_trained_job("gpt", tmp_path)
    stage.create(job)
    assert stage.wait_progress("gpt", 3)["mesh"] == "data=2"
    stage.change("gpt", suspend=True)
    status = stage.wait_phase("gpt", "Suspended")
    reached = status["checkpoint"]["step"]
    assert reached >= status["progress"]["step"] >= 3, "no checkpoint was due but the one of the stop"
    smaller = {**job["spec"]["roles"][0], "replicas": 1}
    stage.change("gpt", roles=[smaller], trainer={"steps": reached + 2})
    stage.change("gpt", suspend=False)
    status = stage.wait_phase("gpt", "Succeeded")
    assert (status["mesh"], status["attempt"]) == ("data=1", 2)
    assert (status["progress"]["step"], status["progress"]["attempt"]) == (reached + 2, 2)
    assert status["checkpoint"]["step"] == reached + 2
    assert (status.get("restarts", 0), status.get("incidents", [])) == (0, [])
    [pod] = stage.gang(2)
    log = stage.cluster.kubectl("logs", pod["metadata"]["name"], "-n", stage.namespace).stdout
    assert f'"resumed_from_step": {reached}' in log
