"""Statuses from states: a table, and what must hold for every state."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from devcluster.node.admission import no_room
from devcluster.node.model import Pod, parse_pod
from devcluster.node.status import (
    ContainerState,
    PodState,
    Running,
    Terminated,
    Verdict,
    Waiting,
    image_id,
    phase,
    rejected,
    status_patch,
)
from devcluster.node.support import ignored, unsupported

NOW, EARLIER = "2026-01-01T00:00:10Z", "2026-01-01T00:00:00Z"
W, R = Waiting("ContainerCreating"), Running(EARLIER)
OK, BAD = Terminated(0, "Completed"), Terminated(3, "Error")


def a_pod(*containers: str, init: tuple[str, ...] = (), **more: Any) -> Pod:
    spec = {"containers": [{"name": name, "image": "i"} for name in containers or ("a",)], "restartPolicy": "Never"}
    spec |= {"initContainers": [{"name": name, "image": "i"} for name in init]} | more.pop("spec", {})
    return parse_pod({"metadata": {"uid": "u", "name": "p", "namespace": "ns", "generation": 4}, "spec": spec, **more})


def _state(**states: ContainerState) -> PodState:
    return PodState(states=states)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (_state(), "Pending"),
        (_state(i=W, a=W, b=W), "Pending"),
        (_state(i=R, a=W, b=W), "Pending"),
        (_state(i=BAD, a=W, b=W), "Failed"),
        (_state(i=OK, a=R, b=W), "Pending"),
        (_state(i=OK, a=R, b=R), "Running"),
        (_state(i=OK, a=OK, b=R), "Running"),
        (_state(i=OK, a=BAD, b=R), "Running"),
        (_state(i=OK, a=OK, b=OK), "Succeeded"),
        (_state(i=OK, a=BAD, b=OK), "Failed"),
        (PodState(states={"i": OK, "a": OK, "b": W}, over=True), "Failed"),
        (PodState(states={"i": OK, "a": R, "b": OK}, verdict=Verdict("DeadlineExceeded", "")), "Running"),
        (PodState(states={"i": OK, "a": OK, "b": OK}, verdict=Verdict("DeadlineExceeded", "")), "Failed"),
    ],
)
def test_phases(state: PodState, expected: str) -> None:
    assert phase(a_pod("a", "b", init=("i",)), state) == expected


_STATES = st.sampled_from([W, R, OK, BAD])


@given(_STATES, _STATES, _STATES, st.booleans(), st.booleans())
def test_conditions_agree_with_the_phase(i: Any, a: Any, b: Any, over: bool, sandbox: bool) -> None:
    pod = a_pod("a", "b", init=("i",))
    status = status_patch(pod, PodState(states={"i": i, "a": a, "b": b}, over=over, sandbox=sandbox), NOW, {})
    holds = {one["type"]: one["status"] == "True" for one in status["conditions"]}
    assert holds["PodScheduled"]
    assert holds["Ready"] == holds["ContainersReady"] == (status["phase"] == "Running" and a == b == R)
    if holds["Ready"]:
        assert holds["Initialized"]
    if status["phase"] == "Succeeded":
        assert holds["Initialized"]
        assert not holds["PodReadyToStartContainers"]
    ready = {one["name"]: one["ready"] for one in status["containerStatuses"]}
    assert ready == {"a": a == R, "b": b == R}


def test_only_changed_conditions_get_a_new_time() -> None:
    pod = a_pod("a")
    before = status_patch(pod, _state(a=W), EARLIER, {})
    after = status_patch(pod, _state(a=R), NOW, {one["type"]: one for one in before["conditions"]})
    times = {one["type"]: one["lastTransitionTime"] for one in after["conditions"]}
    assert times["Initialized"] == times["PodScheduled"] == EARLIER
    assert times["Ready"] == times["ContainersReady"] == NOW
    ready = next(one for one in after["conditions"] if one["type"] == "Ready")
    assert (ready["reason"], ready["message"]) == (None, None), "what an earlier patch has set must be cleared"


def test_a_status_as_a_whole() -> None:
    ended = Terminated(1, "Error", "words", EARLIER, NOW, "process://7")
    state = PodState(states={"b": ended, "a": OK}, start_time=EARLIER, pod_ip="10.0.0.1", host_ip="127.0.0.1")
    status = status_patch(a_pod("b", "a"), state, NOW, {})
    assert {key: status[key] for key in ("phase", "podIP", "podIPs", "hostIP", "startTime", "observedGeneration")} == {
        "phase": "Failed",
        "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}],
        "hostIP": "127.0.0.1",
        "startTime": EARLIER,
        "observedGeneration": 4,
    }
    assert [one["name"] for one in status["containerStatuses"]] == ["a", "b"], "sorted, as by a kubelet"
    assert status["containerStatuses"][1]["state"] == {
        "terminated": {
            "exitCode": 1, "reason": "Error", "message": "words", "startedAt": EARLIER, "finishedAt": NOW,
            "containerID": "process://7",
        }
    }  # fmt: skip
    assert status["containerStatuses"][1]["containerID"] == "process://7"


def test_rejections_and_made_up_image_ids() -> None:
    status = rejected(a_pod(), Verdict("OutOfcpu", "no room"), NOW)
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", "OutOfcpu", "Pod was rejected: no room")
    assert image_id("repo/x:1").startswith("repo/x:1@sha256:")
    assert image_id("repo/x@sha256:abc") != image_id("repo/x:1")


def _asking(cpu: str = "0", gpus: str = "0", init_cpu: str = "0") -> Pod:
    resources = {"limits": {"nvidia.com/gpu": gpus}, "requests": {"cpu": cpu, "nvidia.com/gpu": gpus}}
    init = {"name": "i", "resources": {"requests": {"cpu": init_cpu}}}
    return a_pod(spec={"containers": [{"name": "a", "resources": resources}], "initContainers": [init]})


CAPACITY = {"cpu": "2", "memory": "1Gi", "pods": "3", "nvidia.com/gpu": "8"}


@pytest.mark.parametrize(
    ("pod", "others", "reason"),
    [
        (_asking("2", "8"), [], None),
        (_asking("1500m"), [_asking("500m")], None),
        (_asking("1501m"), [_asking("500m")], "OutOfcpu"),
        (_asking("1", init_cpu="3"), [], "OutOfcpu"),
        (_asking(gpus="4"), [_asking(gpus="4")], None),
        (_asking(gpus="4"), [_asking(gpus="5")], "UnexpectedAdmissionError"),
        (_asking(), [_asking()] * 2, None),
        (_asking(), [_asking()] * 3, "OutOfpods"),
    ],
)
def test_room(pod: Pod, others: list[Pod], reason: str | None) -> None:
    verdict = no_room(pod, others, CAPACITY)
    assert (verdict.reason if verdict else None) == reason


def test_messages_count_cpus_in_thousandths() -> None:
    verdict = no_room(_asking("3"), [_asking("500m")], CAPACITY)
    assert verdict
    assert verdict.message == "Node didn't have enough resource: cpu, requested: 3000, used: 500, capacity: 2000"


def test_what_process_nodes_run_and_what_they_ignore() -> None:
    plain = a_pod(spec={"containers": [{"name": "a", "command": ["x"], "args": ["y"]}]})
    assert unsupported(plain) is None
    assert ignored(plain) == ""
    only_args = a_pod(spec={"containers": [{"name": "a", "args": ["y"]}]})
    verdict = unsupported(only_args)
    assert verdict
    assert "no command" in verdict.message
    gpu = a_pod(
        spec={"containers": [{"name": "a", "command": ["x"], "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
    )
    assert ignored(gpu) == "", "GPUs are counted"
