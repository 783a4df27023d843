"""Starting and ending: two clusters side by side, whatever ends a cluster leaves nothing, the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.errors import ApiError, NotRunningError, StartError

pytestmark = pytest.mark.cluster
CONTROL_PLANE = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}


def eventually(condition: Callable[[], object], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.05)


def processes_of(directory: Path) -> dict[int, str]:
    """Every process that has the cluster's directory on its command line, with that line."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if str(directory) in line and int(entry.name) != os.getpid():
            found[int(entry.name)] = line
    return found


def test_two_clusters_live_side_by_side_and_one_dies_with_its_killed_parent(cluster: Cluster, tmp_path: Path) -> None:
    directory = tmp_path / "second"
    start = (
        "import sys, time; from pathlib import Path; from devcluster.cluster import Cluster;"
        "cluster = Cluster.start(Path(sys.argv[1])); print('started', flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", start, str(directory)], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    assert parent.stdout.readline() == "started\n"
    second = Cluster.attach(directory)
    second.create_namespace("only-in-the-second")
    with pytest.raises(ApiError, match="404"):
        cluster.request("GET", "/api/v1/namespaces/only-in-the-second")
    assert second.server != cluster.server
    assert {program.name for program in second.programs()} == CONTROL_PLANE
    assert len(processes_of(directory)) >= 1 + 1 + len(CONTROL_PLANE)

    parent.kill()
    parent.wait()
    parent.stdout.close()

    eventually(lambda: not processes_of(directory))
    with pytest.raises(NotRunningError):
        Cluster.attach(directory)
    assert cluster.request("GET", "/api/v1/namespaces/default")["metadata"]["name"] == "default"


def devcluster(directory: Path, *args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "devcluster", "--directory", str(directory), *args],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def run_sleep(directory: Path) -> None:
    """Runs a pod on the process node; its process has the cluster's directory on its command line."""
    sleep = [sys.executable, "-c", "import time; time.sleep(600)", str(directory)]
    container = {"name": "main", "image": "python", "command": sleep}
    pod = {
        "metadata": {"name": "sleeps"},
        "spec": {"nodeName": "node-0", "restartPolicy": "Never", "containers": [container]},
    }
    cluster = Cluster.attach(directory)
    cluster.request("POST", "/api/v1/namespaces/default/pods", pod)
    eventually(lambda: any("time.sleep(600)" in line for line in processes_of(directory).values()))


def test_up_stays_after_the_command_and_down_leaves_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "up"
    assert devcluster(directory, "status").returncode == 1

    up = devcluster(directory, "up", "--nodes", "1", "--fake-nodes", "1")
    try:
        assert up.returncode == 0, up.stderr
        assert f"export KUBECONFIG={directory}/kubeconfig" in up.stdout
        status = devcluster(directory, "status").stdout
        assert {name for name in CONTROL_PLANE if f"{name} " in status} == CONTROL_PLANE
        assert status.count(" running") == len(CONTROL_PLANE) + len(("node-program-node", "node-program-fake"))
        assert {line.split()[0] for line in status.splitlines() if " Ready " in line} == {"node-0", "fake-0"}
        run_sleep(directory)
        asked = devcluster(directory, "kubectl", "get", "namespace", "default", "--output=json")
        assert json.loads(asked.stdout)["metadata"]["name"] == "default"
        again = devcluster(directory, "up", "--nodes", "0")
        assert (again.returncode, "already" in again.stderr) == (1, True)
        assert devcluster(directory, "kubectl", "get", "nonsense").returncode == 1
    finally:
        down = devcluster(directory, "down")

    assert down.returncode == 0
    assert not processes_of(directory)
    assert not directory.exists()
    assert devcluster(directory, "down").returncode == 0


def test_down_removes_no_folder_that_is_not_a_clusters(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    assert devcluster(tmp_path, "down").returncode == 0
    assert (tmp_path / "precious").exists()


def test_a_program_that_cannot_start_is_named_with_its_log_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"kube-apiserver ended with 1:[\s\S]*no-such-flag"):
        Cluster.start(tmp_path, extra_arguments={"kube-apiserver": ["--no-such-flag"]})
    assert not processes_of(tmp_path)


def test_what_takes_too_long_is_given_up_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="not in 0 s: "):
        Cluster.start(tmp_path, start_seconds=0.0)
    assert not processes_of(tmp_path)


def test_interrupted_while_starting_it_leaves_nothing(tmp_path: Path) -> None:
    starting = subprocess.Popen(
        [sys.executable, "-m", "devcluster", "--directory", str(tmp_path), "up"], stderr=subprocess.PIPE, text=True
    )
    eventually(lambda: any("kube-apiserver" in line for line in processes_of(tmp_path).values()))

    starting.send_signal(signal.SIGINT)

    assert starting.wait(30) == 130
    assert starting.communicate()[1] == ""
    assert not processes_of(tmp_path)
