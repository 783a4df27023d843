"""Gangs that wait, on a real API server: one of two starts, freed capacity wakes, whole gangs give way to others."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from devcluster.cluster import Cluster
from devcluster.errors import ApiError
from meshwright_api import names
from tests.system.stage import FAKE_NODES, Json, Stage, a_job, a_template, eventually

GPUS = 4
"""Of each of the six nodes; no other test asks for any of theirs."""
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.fixture(scope="module")
def classes(cluster: Cluster) -> Iterator[None]:
    """Two classes with which kube-scheduler never preempts; gangs of the higher one do."""
    for name, value, ours in (
        ("queue-low", 10, {}),
        ("queue-high", 1000, {names.ANNOTATION_PREEMPTION_POLICY: "PreemptLowerPriority"}),
    ):
        body = {"metadata": {"name": name, "annotations": ours}, "value": value, "preemptionPolicy": "Never"}
        cluster.request("POST", CLASSES, body)
    yield
    for name in ("queue-low", "queue-high"):
        cluster.request("DELETE", f"{CLASSES}/{name}")


@pytest.fixture(autouse=True)
def left_empty(stage: Stage) -> Iterator[None]:
    """The nodes are everybody's: each test leaves them free."""
    yield
    for job in stage.cluster.request("GET", stage.jobs_path())["items"]:
        stage.delete(job["metadata"]["name"])
    eventually(lambda: not stage.pods(), "nothing is left")


def whole_nodes(name: str, nodes: int, *, grace: int = 1, **spec: Any) -> Json:
    """A gang that needs that many whole nodes."""
    # In a run of all tests there are nodes of others, with GPUs too.
    template = a_template(terminationGracePeriodSeconds=grace, nodeSelector=FAKE_NODES)
    roles = [{"name": "worker", "replicas": nodes, "gpusPerPod": GPUS, "template": template}]
    return a_job(name, roles=roles, agent="None", **spec)


def pods_of(stage: Stage, name: str) -> list[Json]:
    uid = stage.job(name)["metadata"]["uid"]
    return stage.pods(**{names.LABEL_JOB_UID: uid})


def test_of_two_gangs_that_fit_alone_one_runs_and_the_other_follows_at_once(stage: Stage) -> None:
    """K37, K34."""
    for name in ("one", "two"):
        stage.create(whole_nodes(name, 4))
    eventually(lambda: "Running" in {stage.status(n).get("phase") for n in ("one", "two")}, "one of them runs")
    first, second = sorted(("one", "two"), key=lambda name: stage.status(name).get("phase") != "Running")
    waiting = stage.wait_phase(second, "Pending", reason=names.REASON_WAITING_FOR_CAPACITY)
    assert pods_of(stage, second) == []
    message = stage.condition(second, names.SCHEDULED)["message"]
    assert "4 pods of role worker each need 4 nvidia.com/gpu" in message
    assert "there is room for 2" in message
    assert "fake-" not in message, "other tenants' nodes are not named"
    assert waiting["ready"] == "0/4"

    uid = stage.job(first)["metadata"]["uid"]
    stage.delete(first)
    eventually(lambda: not stage.pods(**{names.LABEL_JOB_UID: uid}), "the first one's pods end")
    freed = time.monotonic()
    eventually(lambda: pods_of(stage, second), "the second starts")
    assert time.monotonic() - freed < 3, "not at the next resync, which is every 5 s"
    stage.wait_phase(second, "Running")


@pytest.mark.parametrize("how", ["uncordoned", "untainted"])
def test_a_node_that_takes_pods_again_wakes_who_waits_for_it(stage: Stage, how: str) -> None:
    node = "/api/v1/nodes/fake-0"
    taint = [{"key": "repair", "effect": "NoSchedule"}]
    stage.cluster.request(
        "PATCH", node, {"spec": {"unschedulable": True} if how == "uncordoned" else {"taints": taint}}
    )
    try:
        stage.create(whole_nodes("all", 6))
        stage.wait_phase("all", "Pending", reason=names.REASON_WAITING_FOR_CAPACITY)
        message = stage.condition("all", names.SCHEDULED)["message"]
        assert ("1 cordoned" if how == "uncordoned" else "1 with a taint") in message
    finally:
        stage.cluster.request("PATCH", node, {"spec": {"unschedulable": None, "taints": None}})
    began = time.monotonic()
    stage.wait_phase("all", "Running")
    assert time.monotonic() - began < 5


def one_pod(name: str, template: Json, **selector: str) -> Json:
    template["spec"] |= {"nodeSelector": {**FAKE_NODES, **selector}, "terminationGracePeriodSeconds": 1}
    roles = [{"name": "worker", "replicas": 1, "template": template}]
    return a_job(name, roles=roles, agent="None", health={"bindDeadlineSeconds": 2})


def test_k84_a_host_port_that_is_taken_sends_a_gang_elsewhere(stage: Stage) -> None:
    """kube-scheduler would never bind a pod that is pinned to a node whose port another has."""
    for name, selector in (("holder", {"kubernetes.io/hostname": "fake-0"}), ("comer", {})):
        template = a_template()
        template["spec"]["containers"][0]["ports"] = [{"containerPort": 7777, "hostPort": 7777}]
        stage.create(one_pod(name, template, **selector))
        assert stage.wait_phase(name, "Running")["attempt"] == 1
    assert [pod["spec"]["nodeName"] for pod in pods_of(stage, "comer")] != ["fake-0"]


def test_k28_a_node_that_kube_scheduler_refuses_is_not_tried_again(stage: Stage) -> None:
    """Of affinity to pods of another kind it has the last word."""
    holder, comer = a_template(), a_template()
    holder["metadata"] = {"labels": {"noisy": "yes"}}
    away = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"noisy": "yes"}}}
    comer["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [away]}}
    stage.create(one_pod("holder", holder, **{"kubernetes.io/hostname": "fake-0"}))
    stage.wait_phase("holder", "Running")
    stage.create(one_pod("comer", comer))
    status = stage.wait_phase("comer", "Running", attempt=2)
    (incident,) = status["incidents"]
    assert (incident["cause"], incident["charged"], incident["culprit"]["node"]) == ("BindDeadline", False, "fake-0")
    assert "anti-affinity" in incident["culprit"]["lastWords"]
    assert [pod["spec"]["nodeName"] for pod in pods_of(stage, "comer")] != ["fake-0"]


def test_a_whole_gang_gives_way_and_comes_back_later(stage: Stage, classes: None) -> None:
    low, high = ({"priorityClassName": f"queue-{which}"} for which in ("low", "high"))
    stage.create(whole_nodes("large", 5, queue=low, grace=3))
    stage.wait_phase("large", "Running")
    stage.create(whole_nodes("small", 1, queue=low))
    stage.wait_phase("small", "Running")
    uid = stage.create(whole_nodes("urgent", 3, queue=high))

    stage.wait_phase("urgent", "Running")
    status = stage.wait_phase("large", "Pending")
    assert pods_of(stage, "large") == [], "never a part of a gang"
    (incident,) = status["incidents"]
    assert (incident["cause"], incident["charged"]) == ("Preempted", False)
    assert status.get("chargedRestarts", []) == []
    assert stage.status("small")["attempt"] == 1, "the younger would have ended for nothing"
    assert len(stage.creates(uid)) == 3
    assert _preempted_by_the_scheduler(stage) == []

    for pod in pods_of(stage, "urgent"):
        stage.end(pod, "0")
    stage.wait_phase("urgent", "Succeeded")
    back = stage.wait_phase("large", "Running", attempt=2)
    assert back["restarts"] == 1
    assert stage.status("small")["attempt"] == 1


def test_nobody_gives_way_to_an_equal_or_in_vain(stage: Stage, classes: None) -> None:
    high = {"priorityClassName": "queue-high"}
    stage.create(whole_nodes("running", 4, queue=high))
    stage.wait_phase("running", "Running")
    stage.create(whole_nodes("equal", 4, queue=high))
    stage.create(whole_nodes("impossible", 7, queue=high))
    for name in ("equal", "impossible"):
        stage.wait_phase(name, "Pending", reason=names.REASON_WAITING_FOR_CAPACITY)
    time.sleep(1)
    assert stage.wait_phase("running", "Running")["attempt"] == 1


def _preempted_by_the_scheduler(stage: Stage) -> list[str]:
    path = f"/api/v1/namespaces/{stage.namespace}/events"
    try:
        events = stage.cluster.request("GET", path)["items"]
    except ApiError:
        return ["events cannot be read"]
    return [e["message"] for e in events if e["reason"] == "Preempted" and e["involvedObject"]["kind"] == "Pod"]


def test_k41_a_quota_keeps_the_whole_gang_out_and_lets_it_in_when_there_is_room(stage: Stage) -> None:
    path = f"/api/v1/namespaces/{stage.namespace}/resourcequotas"
    stage.cluster.request("POST", path, {"metadata": {"name": "team"}, "spec": {"hard": {"pods": "3"}}})
    quota = f"{path}/team"
    eventually(lambda: stage.cluster.request("GET", quota).get("status", {}).get("hard"), "the quota is in force")
    for name in ("one", "two"):
        stage.create(whole_nodes(name, 2))
    eventually(lambda: "Running" in {stage.status(n).get("phase") for n in ("one", "two")}, "one of them runs")
    first, second = sorted(("one", "two"), key=lambda name: stage.status(name).get("phase") != "Running")
    stage.wait_phase(second, "Pending", reason=names.REASON_QUOTA_EXCEEDED)
    eventually(lambda: "1 of 3 left" in stage.condition(second, names.SCHEDULED)["message"], "the figures are said")
    assert pods_of(stage, second) == [], "no partial pods"
    stage.delete(first)
    stage.wait_phase(second, "Running")
