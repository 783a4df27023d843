"""Fake nodes: by the hundred, and each thing that their pods can be told to do."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from devcluster.node.testing import Client, Object, Pods, conditions_of, eventually, state_of

pytestmark = pytest.mark.cluster
MakePods = Callable[[str], Pods]
_LOST = "fake.devcluster/lost"


def _script(**annotations: str) -> dict[str, Any]:
    return {"annotations": {f"fake.devcluster/{key.replace('_', '-')}": value for key, value in annotations.items()}}


def _fake(pods: Pods, name: str, metadata: dict[str, Any] | None = None, **spec: Any) -> Object:
    return pods.create(name, metadata=metadata, **spec)


def _tell(pods: Pods, name: str, **annotations: str) -> None:
    pods.client.merge(pods.path(name), {"metadata": _script(**annotations)})


def _ready(client: Client, node: str) -> str:
    conditions = client.request("GET", f"/api/v1/nodes/{node}")["status"]["conditions"]
    return next(str(one["status"]) for one in conditions if one["type"] == "Ready")


def test_each_annotation(make_nodes: Any, make_pods: MakePods) -> None:
    make_nodes("fake", "stage", "--count=2", "--gpus=8", "--label=rack=r1")
    pods = make_pods("stage")
    keep = {"finalizers": ["devcluster.test/keep"]}
    _fake(pods, "succeeds", _script(run_seconds="0.2"))
    _fake(pods, "fails", _script(run_seconds="0.2", exit_code="3"))
    _fake(pods, "slow", _script(start_seconds="1.5"), nodeSelector={"rack": "r1"})
    _fake(pods, "refused", _script(refuse="UnexpectedAdmissionError"))
    _fake(pods, "misspelt", _script(run_seconds="soon"))
    _fake(pods, "gpus", container={"resources": {"limits": {"nvidia.com/gpu": "8"}}})
    _fake(pods, "told", containers=[{"name": "main"}, {"name": "second"}])
    _fake(pods, "oom")
    _fake(pods, "words")
    _fake(pods, "leaves", _script(term_seconds="1") | keep)
    _fake(pods, "stays", _script(ignore_term="true") | keep, terminationGracePeriodSeconds=2)
    _fake(pods, "goes", keep)

    assert state_of(pods.finished("succeeds"))["reason"] == "Completed"
    assert (state_of(pods.finished("fails"))["exitCode"], state_of(pods.get("fails"))["reason"]) == (3, "Error")
    for name in ("gpus", "told", "oom", "words", "leaves", "stays", "goes"):
        assert conditions_of(pods.wait(name, "Running"))["Ready"] == ("True", "")
    slow = pods.wait("slow", "Running")["status"]
    assert slow["containerStatuses"][0]["state"]["running"]["startedAt"] > slow["startTime"]
    assert pods.finished("refused")["status"]["reason"] == "UnexpectedAdmissionError"
    assert "containerStatuses" not in pods.get("refused")["status"]
    assert pods.finished("misspelt")["status"]["reason"] == "BadScript"

    _tell(pods, "told", exit="5")
    told = pods.finished("told")
    assert [state_of(told, name)["exitCode"] for name in ("main", "second")] == [5, 5]
    _tell(pods, "oom", exit="137:OOMKilled")
    assert {"exitCode": 137, "reason": "OOMKilled"}.items() <= state_of(pods.finished("oom")).items()
    _tell(pods, "words", exit="1:Error:NaN: at step 7")
    wanted = {"exitCode": 1, "reason": "Error", "message": "NaN: at step 7"}
    assert wanted.items() <= state_of(pods.finished("words")).items()

    began = time.monotonic()
    for name in ("leaves", "stays", "goes"):
        pods.delete(name, grace=2 if name == "stays" else 30)
    ends = {name: state_of(pods.finished(name))["exitCode"] for name in ("goes", "leaves", "stays")}
    assert ends == {"goes": 143, "leaves": 143, "stays": 137}
    assert 1.9 < time.monotonic() - began < 25
    for name in ends:
        pods.client.merge(pods.path(name), {"metadata": {"finalizers": None}})
        pods.wait_gone(name)


def test_a_lost_node_returns_and_finishes_what_it_missed(make_nodes: Any, make_pods: MakePods) -> None:
    make_nodes("fake", "frail", "--count=2")
    pods = make_pods("frail")
    client = pods.client
    for name, script in (("deleted", {}), ("ends", {"run_seconds": "3"}), ("told", {}), ("stays", {})):
        _fake(pods, name, _script(**script), nodeName="frail-0")
        pods.wait(name, "Running")
    client.merge("/api/v1/nodes/frail-0", {"metadata": {"annotations": {_LOST: "true"}}})
    eventually(lambda: _ready(client, "frail-0") == "Unknown", "the loss is noticed")
    pods.delete("deleted")
    _tell(pods, "told", exit="9")
    _fake(pods, "new", _script(run_seconds="0"), nodeName="frail-0")
    _fake(pods, "other", _script(run_seconds="0"), nodeName="frail-1")
    assert pods.finished("other")["status"]["phase"] == "Succeeded"
    assert {pods.get(name)["status"]["phase"] for name in ("deleted", "ends", "told", "stays")} == {"Running"}
    assert pods.get("new")["status"]["phase"] == "Pending"
    assert _ready(client, "frail-1") == "True"
    client.merge("/api/v1/nodes/frail-0", {"metadata": {"annotations": {_LOST: None}}})
    eventually(lambda: _ready(client, "frail-0") == "True", "it is back")
    pods.wait_gone("deleted")
    assert state_of(pods.finished("ends"))["exitCode"] == 0
    assert state_of(pods.finished("told"))["exitCode"] == 9
    assert pods.finished("new")["status"]["phase"] == "Succeeded"
    assert pods.get("stays")["status"]["phase"] == "Running"


def test_fake_pods_go_on_when_their_program_is_started_again(make_nodes: Any, make_pods: MakePods) -> None:
    program = make_nodes("fake", "phoenix")
    pods = make_pods("phoenix")
    _fake(pods, "timed", _script(run_seconds="4"))
    _fake(pods, "endless")
    started = {name: state_of(pods.wait(name, "Running"))["startedAt"] for name in ("timed", "endless")}
    address = pods.get("endless")["status"]["podIP"]
    program.stop(signal.SIGKILL)
    program.start()
    assert state_of(pods.finished("timed"))["startedAt"] == started["timed"]
    _tell(pods, "endless", exit="2")
    endless = pods.finished("endless")
    assert (state_of(endless)["startedAt"], state_of(endless)["exitCode"]) == (started["endless"], 2)
    assert endless["status"]["podIP"] == address


@pytest.mark.slow
def test_two_hundred_nodes_run_four_hundred_pods(make_nodes: Any, make_pods: MakePods) -> None:
    make_nodes("fake", "many", "--count=200", "--gpus=8")
    pods = make_pods("many")
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "4"}}}
    names = [f"crowd-{number}" for number in range(400)]
    for name in names:
        _fake(pods, name, container=gpus)

    def all_are(phase: str) -> list[Object] | None:
        found: list[Object] = pods.client.request("GET", pods.path())["items"]
        return found if {one["status"]["phase"] for one in found} == {phase} else None

    items = eventually(lambda: all_are("Running"), "400 pods run", 300)
    assert len({one["status"]["podIP"] for one in items}) == 400
    per_node = Counter(one["spec"]["nodeName"] for one in items)
    assert set(per_node.values()) == {2}, "two pods of four GPUs fill a node"
    for name in names:
        _tell(pods, name, exit="0")
    assert len(eventually(lambda: all_are("Succeeded"), "400 pods have ended", 300)) == 400
    states = {_ready(pods.client, f"many-{number}") for number in range(0, 200, 20)}
    assert states == {"True"}
