"""The contract: `kubectl logs`."""

from __future__ import annotations

import re
import subprocess
import threading
from datetime import UTC, datetime, timedelta

import pytest

from devcluster.cluster import Cluster
from devcluster.node.testing import Gates, Pods, Refused, eventually

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


def test_following_shows_lines_as_they_come_and_ends_with_the_container(
    pods: Pods, cluster: Cluster, gates: Gates
) -> None:
    script = f"echo first; {gates.wait('go')}; sleep 1.1; echo last"
    pods.create("slow", "sh", "-c", script, container=gates.mounts, volumes=gates.volumes)
    pods.wait_for_line("slow", "first")
    kubectl = [str(cluster.kubectl_path), "--kubeconfig", str(cluster.kubeconfig), "--namespace", pods.namespace]
    with subprocess.Popen([*kubectl, "logs", "-f", "slow"], stdout=subprocess.PIPE, text=True) as follower:
        assert follower.stdout is not None
        killer = threading.Timer(60, follower.kill)
        killer.start()
        first = follower.stdout.readline()
        gates.open("go")
        rest = follower.stdout.read()
        killer.cancel()
    assert (first, rest) == ("first\n", "last\n")
    assert follower.returncode == 0, "it ended by itself"
    stamp = pods.log("slow", timestamps="true").splitlines()[1].split(" ")[0]
    assert pods.log("slow", sinceTime=stamp) == "last\n"
