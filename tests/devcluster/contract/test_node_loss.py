"""The contract: a node that cannot be reached, and that returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from devcluster.node.testing import Gates, Object, Pods, eventually, state_of

pytestmark = pytest.mark.cluster
_TERM_EXITS_5 = (
    "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(5)); print('up', flush=True); time.sleep(100)"
)


@pytest.fixture
def lost_node(kubelet: Any) -> Iterator[str]:
    """A node that the test may cut off; in the end it is connected again."""
    yield kubelet.nodes[0]
    kubelet.connect(kubelet.nodes[0])


def _ready(pods: Pods, node: str) -> str:
    conditions = _node(pods, node)["status"]["conditions"]
    return next(str(one["status"]) for one in conditions if one["type"] == "Ready")


def _node(pods: Pods, node: str) -> Object:
    found: Object = pods.client.request("GET", f"/api/v1/nodes/{node}")
    return found


def _taints(pods: Pods, node: str) -> set[str]:
    return {one["key"] for one in _node(pods, node)["spec"].get("taints", ())}


def test_a_lost_node_is_noticed_and_catches_up_when_it_returns(
    pods: Pods, kubelet: Any, lost_node: str, gates: Gates
) -> None:
    for name in ("deleted", "stays"):
        pods.create(name, "python3", "-c", _TERM_EXITS_5, nodeName=lost_node)
    script = f"echo up; {gates.wait('end')}; touch /gates/ended"
    pods.create("ends", "sh", "-c", script, nodeName=lost_node, container=gates.mounts, volumes=gates.volumes)
    pods.create("elsewhere", "python3", "-c", _TERM_EXITS_5, nodeName=kubelet.nodes[1])
    for name in ("deleted", "ends", "stays", "elsewhere"):
        pods.wait(name, "Running")
        pods.wait_for_line(name, "up")
    kubelet.cut_off(lost_node)
    gates.open("end")
    eventually(lambda: (gates.folder / "ended").exists(), "a pod ends unseen")
    pods.delete("deleted", grace=1)
    eventually(lambda: _ready(pods, lost_node) == "Unknown", "the control plane notices")
    eventually(lambda: "node.kubernetes.io/unreachable" in _taints(pods, lost_node), "it is tainted")
    pods.delete("elsewhere")
    pods.wait_gone("elsewhere")
    assert pods.get("deleted")["metadata"]["deletionTimestamp"], "nobody ends it"
    assert state_of(pods.get("ends"))["is"] == "running", "nobody says that it has ended"
    assert _ready(pods, kubelet.nodes[1]) == "True"
    kubelet.connect(lost_node)
    eventually(lambda: _ready(pods, lost_node) == "True", "it is back")
    pods.wait_gone("deleted")
    assert pods.finished("ends")["status"]["phase"] == "Succeeded"
    assert pods.get("stays")["status"]["phase"] == "Running"
    eventually(lambda: not _taints(pods, lost_node), "the taints are lifted")
    pods.create("new", "true", nodeName=lost_node)
    assert pods.finished("new")["status"]["phase"] == "Succeeded"
