"""Faults that other operators had with names, caches, finalizers and stale state, each tried on ours."""

from __future__ import annotations

import json

import pytest

from devcluster.errors import ApiError
from meshwright_api import names
from tests.system.operators import Operator
from tests.system.stage import RUN_SECONDS, Stage, a_job, a_template, eventually


def test_k43_no_replicas_means_no_pods(stage: Stage) -> None:
    roles = [
        {"name": "worker", "replicas": 1, "template": a_template()},
        {"name": "evaluator", "replicas": 0, "template": a_template()},
    ]
    uid = stage.create(a_job("k43", roles=roles))
    stage.wait_phase("k43", "Running")
    assert stage.creates(uid) == [("worker", "0", "1")]
    with pytest.raises(ApiError, match="suspend"):
        stage.create(a_job("none", workers=0))


@pytest.mark.parametrize("how", ["Succeeded", "Failed"])
def test_k48_terminal_is_terminal_whatever_happens_to_the_pods(stage: Stage, how: str) -> None:
    uid = stage.create(a_job("k48", failurePolicy={"maxRestarts": 0}, cleanPodPolicy="None"))
    stage.wait_phase("k48", "Running")
    for pod in stage.gang(1):
        stage.end(pod, "0" if how == "Succeeded" else "1")
    final = stage.wait_phase("k48", how)
    for pod in stage.pods():
        stage.delete_pod(pod)
    eventually(lambda: not stage.pods(), "the pods are gone")
    stage.create(a_job("after", template=a_template({RUN_SECONDS: "0.1"})))
    stage.wait_phase("after", "Succeeded")
    assert stage.status("k48") == final
    assert len(stage.creates(uid)) == 2


def test_k48_pods_that_succeeded_and_were_deleted_while_nobody_looked_are_not_run_again(
    stage: Stage, operator: Operator
) -> None:
    uid = stage.create(a_job("later", workers=2))
    stage.wait_phase("later", "Running")
    for pod in stage.gang(1):
        stage.end(pod, "0")
    stage.wait_phase("later", "Succeeded")
    operator.kill()
    for pod in stage.pods():
        stage.delete_pod(pod)
    operator.start()
    stage.create(a_job("after", template=a_template({RUN_SECONDS: "0.1"})))
    stage.wait_phase("after", "Succeeded")
    assert stage.status("later")["phase"] == "Succeeded"
    assert len(stage.creates(uid)) == 2


def test_k50_a_job_made_again_under_its_name_is_another_job(stage: Stage) -> None:
    stubborn = a_template({"fake.devcluster/ignore-term": "true"}, terminationGracePeriodSeconds=5)
    first = stage.create(a_job("k50", template=stubborn))
    stage.wait_phase("k50", "Running")
    old = {pod["metadata"]["uid"] for pod in stage.pods()}
    stage.delete("k50")
    second = stage.create(a_job("k50"))
    status = stage.wait_phase("k50", "Running")
    assert first != second
    assert (status["attempt"], status.get("incidents", [])) == (1, [])
    eventually(lambda: not old & {pod["metadata"]["uid"] for pod in stage.pods()}, "the old job's pods are gone")
    assert stage.status("k50")["attempt"] == 1


def test_k51_k52_a_pod_that_exists_already_is_taken_and_never_made_twice(stage: Stage, operator: Operator) -> None:
    for attempt in range(3):
        name = f"k51-{attempt}"
        uid = stage.create(a_job(name, workers=4))
        eventually(lambda uid=uid: stage.creates(uid), "the first pod is created", 30)
        operator.kill()
        operator.start()
        status = stage.wait_phase(name, "Running")
        creates = stage.creates(uid)
        assert len(creates) == len(set(creates)), "a pod was created twice"
        assert status["attempt"] == 1
        stage.delete(name)


def test_k51_a_foreign_pod_in_our_place_is_named_and_not_touched(stage: Stage, operator: Operator) -> None:
    operator.kill()
    uid = stage.create(a_job("squat"))
    name = names.pod_name("squat", uid, "worker", 1, 1)
    foreign = {
        "metadata": {"name": name},
        "spec": {"containers": [{"name": "c", "image": "none", "command": ["sleep"]}]},
    }
    made = stage.cluster.request("POST", f"/api/v1/namespaces/{stage.namespace}/pods", foreign)
    operator.start()
    eventually(lambda: stage.condition("squat", names.RUNNING).get("reason") == names.REASON_POD_REFUSED, "it is said")
    assert name in stage.condition("squat", names.RUNNING)["message"]
    there = next(pod for pod in stage.pods() if pod["metadata"]["name"] == name)
    assert there["metadata"]["uid"] == made["metadata"]["uid"]
    stage.delete_pod(there)
    stage.wait_phase("squat", "Running")


def test_k59_no_annotations_and_no_finalizers_are_ours_and_foreign_ones_do_not_matter(stage: Stage) -> None:
    job = a_job("k59")
    foreign = {"kopf.zalando.org/last-handled-configuration": json.dumps({"spec": "x" * 20_000})}
    job["metadata"]["annotations"] = foreign
    stage.create(job)
    stage.wait_phase("k59", "Running")
    metadata = stage.job("k59")["metadata"]
    assert metadata["annotations"] == foreign
    assert "finalizers" not in metadata


def test_k60_jobs_and_namespaces_can_be_deleted_while_no_operator_runs(stage: Stage, operator: Operator) -> None:
    stage.create(a_job("k60"))
    stage.wait_phase("k60", "Running")
    operator.kill()
    stage.delete("k60", propagation="Foreground")
    eventually(lambda: not _jobs(stage), "the job is gone")
    eventually(lambda: not stage.pods(), "its pods are gone")
    kinds = ("configmaps", "services")
    left = [i["metadata"]["name"] for kind in kinds for i in _list(stage, kind) if "k60" in i["metadata"]["name"]]
    eventually(lambda: not [n for kind in kinds for n in _named(stage, kind, "k60")], f"nothing is left of {left}")


def test_k61_only_where_things_stand_counts_not_how_they_came_there(stage: Stage, operator: Operator) -> None:
    stage.create(a_job("k61"))
    stage.wait_phase("k61", "Running")
    operator.kill()
    stage.change("k61", suspend=True)
    stage.change("k61", suspend=False, failurePolicy={"evidenceSeconds": 1, "maxRestarts": 7})
    stage.change("k61", suspend=True)
    operator.start()
    stage.wait_phase("k61", "Suspended")
    assert not stage.pods()
    stage.change("k61", suspend=False)
    stage.wait_phase("k61", "Running", attempt=2)


def test_k62_a_resumed_job_looks_like_one_that_runs(stage: Stage) -> None:
    stage.create(a_job("k62", suspend=True))
    stage.wait_phase("k62", "Suspended")
    assert not stage.pods()
    stage.change("k62", suspend=False)
    status = stage.wait_phase("k62", "Running")
    assert stage.condition("k62", names.SUSPENDED)["status"] == "False"
    assert stage.condition("k62", names.RUNNING)["status"] == "True"
    shown = stage.cluster.kubectl("get", "tj", "k62", "-n", stage.namespace, "--no-headers").stdout.split()
    assert "Running" in shown
    assert "2/2" in shown
    stage.change("k62", suspend=True)
    stage.wait_phase("k62", "Suspended")
    stage.change("k62", suspend=False)
    status = stage.wait_phase("k62", "Running", attempt=2)
    assert status.get("incidents", []) == []
    assert status.get("chargedRestarts", []) == []


def _jobs(stage: Stage) -> list[object]:
    return list(stage.cluster.request("GET", stage.jobs_path())["items"])


def _list(stage: Stage, kind: str) -> list[dict[str, dict[str, str]]]:
    return list(stage.cluster.request("GET", f"/api/v1/namespaces/{stage.namespace}/{kind}")["items"])


def _named(stage: Stage, kind: str, part: str) -> list[str]:
    return [i["metadata"]["name"] for i in _list(stage, kind) if part in i["metadata"]["name"]]
