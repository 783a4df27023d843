"""The contract: `kubectl logs`."""

from __future__ import annotations

import re
import subprocess
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

from devcluster.cluster import Cluster
from devcluster.node.testing import Pods, Refused, eventually

pytestmark = pytest.mark.cluster


def test_logs_of_running_and_finished_containers(pods: Pods) -> None:
    script = "for i in 1 2 3; do echo out $i; echo err $i >&2; sleep 0.02; done; printf no-newline; exec sleep $0"
    pods.create(
        "talker",
        containers=[
            {"name": "goes-on", "command": ["sh", "-c", script, "100"]},
            {"name": "ends", "command": ["sh", "-c", script, "0"]},
            {"name": "long-line", "command": ["python3", "-c", "print('x' * 40000); print('y')"]},
        ],
    )
    whole = [f"{stream} {number}" for number in (1, 2, 3) for stream in ("out", "err")]
    pods.wait_for_line("talker", "y", "long-line")
    for container in ("ends", "goes-on"):
        pods.wait_for_line("talker", "err 3", container)
    eventually(lambda: "no-newline" in pods.log("talker", container="ends"), "the last words")
    assert sorted(pods.log("talker", container="ends").split("\n")) == sorted([*whole, "no-newline"])
    assert sorted(pods.log("talker", container="goes-on").split("\n")[:6]) == sorted(whole)
    assert pods.log("talker", container="long-line") == "x" * 40000 + "\ny\n"
    assert len(pods.log("talker", container="goes-on", tailLines=2).splitlines()) == 2
    assert pods.log("talker", container="long-line", tailLines=1) == "y\n"
    assert pods.log("talker", container="long-line", limitBytes=5) == "xxxxx"
    stamped = pods.log("talker", container="goes-on", timestamps="true").splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z (out|err) \d$", line) for line in stamped)
    later = (datetime.now(UTC) + timedelta(seconds=5)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert pods.log("talker", container="goes-on", sinceTime=later) == ""
    with pytest.raises(Refused, match="previous terminated container"):
        pods.log("talker", container="ends", previous="true")


def test_a_container_that_waits_has_no_log(pods: Pods) -> None:
    pods.create("waits", "true", volumes=[{"name": "never", "configMap": {"name": "never"}}])
    pods.wait_until("waits", lambda pod: bool(pod["status"].get("containerStatuses")), "the node has seen it")
    with pytest.raises(Refused, match="waiting to start"):
        pods.log("waits")


def test_following_shows_lines_as_they_come_and_ends_with_the_container(pods: Pods, cluster: Cluster) -> None:
    mount = {"volumeMounts": [{"name": "pipe", "mountPath": "/pipe"}]}
    pods.create(
        "slow",
        initContainers=[{"name": "makes", "command": ["mkfifo", "/pipe/x"], **mount}],
        containers=[
            {"name": "main", "command": ["sh", "-c", "echo first; read line < /pipe/x; echo last"], **mount},
            {"name": "releases", "command": ["sh", "-c", "sleep 2; echo go > /pipe/x"], **mount},
        ],
        volumes=[{"name": "pipe", "emptyDir": {}}],
    )
    pods.wait_until("slow", lambda pod: pod["status"]["phase"] != "Pending", "it runs")
    kubectl = [str(cluster.kubectl_path), "--kubeconfig", str(cluster.kubeconfig), "--namespace", pods.namespace]
    seen: list[tuple[str, float]] = []
    with subprocess.Popen(
        [*kubectl, "logs", "-f", "slow", "-c", "main"], stdout=subprocess.PIPE, text=True
    ) as follower:
        assert follower.stdout is not None
        killer = threading.Timer(20, follower.kill)
        killer.start()
        seen = [(line, time.monotonic()) for line in follower.stdout]
        killer.cancel()
    assert [line for line, _ in seen] == ["first\n", "last\n"]
    assert follower.returncode == 0, "it ended by itself"
    assert seen[1][1] - seen[0][1] > 0.2, "the first line did not wait for the last"
    stamp = pods.log("slow", container="main", timestamps="true").splitlines()[1].split(" ")[0]
    assert pods.log("slow", container="main", sinceTime=stamp) == "last\n"
