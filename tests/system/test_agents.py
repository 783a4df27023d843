"""Agents in pods that run as real processes: what they report arrives in the status, and a stop reaches what they run."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import Cluster
from tests.installing import SYSTEM, install
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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own with one process node."""
    with Cluster.start(tmp_path_factory.mktemp("agents")) as cluster:
        install(cluster)
        nodes = cluster.start_nodes(mode="process", count=1, name_prefix="real", cpus="8", memory="16Gi")
        yield cluster
        nodes.stop()


@pytest.fixture(scope="module")
def hearing(ground: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator that agents can reach, and that writes progress at once."""
    port = free_port()
    listening: dict[str, Any] = {
        "heartbeat_port": port,
        "heartbeat_url": f"http://127.0.0.1:{port}",
        "heartbeat_interval_seconds": 0.5,
        "progress_seconds": 1,
    }
    account = ground.kubeconfig_for_service_account(SYSTEM, "meshwright-operator")
    operator = Operator(account, tmp_path_factory.mktemp("operator"), SYSTEM, **listening)
    operator.start()
    yield operator
    operator.stop()


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
