"""Faults that other operators had in counting restarts, each tried on ours, on the real API server."""

from __future__ import annotations

from tests.system.operators import Operator
from tests.system.stage import RUN_SECONDS, Stage, a_job, a_template, eventually


def run_out(stage: Stage, name: str, how: str, limit: int, between: Operator | None = None) -> None:
    """Ends worker 0 of attempt after attempt until the budget is used up."""
    for attempt in range(1, limit + 2):
        stage.wait_phase(name, "Running", attempt=attempt)
        if between is not None:
            between.kill()
            between.start()
        stage.end(stage.gang(attempt)[0], how)


def test_k01_every_restart_is_counted_however_often_pods_are_made_anew(stage: Stage) -> None:
    uid = stage.create(a_job("loop", failurePolicy={"maxRestarts": 2}))
    run_out(stage, "loop", "137", limit=2)
    status = stage.wait_phase("loop", "Failed", reason="MaxRestartsExceeded")
    assert len(status["chargedRestarts"]) == 2
    assert status["restarts"] == 2
    assert [i["culprit"]["exitCode"] for i in status["incidents"]] == [137, 137, 137]
    assert len(stage.creates(uid)) == 6


def test_k02_a_permanent_exit_code_fails_the_job_and_says_so(stage: Stage) -> None:
    rules = [{"exitCodes": [3], "action": "Fail"}]
    stage.create(a_job("permanent", failurePolicy={"rules": rules}))
    stage.wait_phase("permanent", "Running")
    stage.end(stage.gang(1)[1], "3:Error:the dataset is not there")
    status = stage.wait_phase("permanent", "Failed", reason="FailurePolicyRule")
    message = stage.condition("permanent", "Failed")["message"]
    assert "exit code 3" in message
    assert status["incidents"][0]["culprit"]["index"] == 1
    assert "the dataset is not there" in status["incidents"][0]["culprit"]["lastWords"]
    assert status.get("chargedRestarts", []) == []


def test_k03_the_budget_survives_the_operators_death_between_increments(stage: Stage, operator: Operator) -> None:
    stage.create(a_job("k03", failurePolicy={"maxRestarts": 2}))
    run_out(stage, "k03", "1", limit=2, between=operator)
    status = stage.wait_phase("k03", "Failed", reason="MaxRestartsExceeded")
    assert len(status["chargedRestarts"]) == 2


def test_k04_no_restart_at_all_is_a_budget_too(stage: Stage) -> None:
    uid = stage.create(a_job("k04", failurePolicy={"maxRestarts": 0}))
    stage.wait_phase("k04", "Running")
    assert all(pod["spec"]["restartPolicy"] == "Never" for pod in stage.gang(1))
    stage.end(stage.gang(1)[0], "1")
    stage.wait_phase("k04", "Failed", reason="MaxRestartsExceeded")
    assert len(stage.creates(uid)) == 2


def test_k05_one_incident_is_one_restart_however_many_pods_fail(stage: Stage, operator: Operator) -> None:
    stage.create(a_job("k05", workers=4, failurePolicy={"maxRestarts": 1}))
    stage.wait_phase("k05", "Running")
    operator.kill()
    for pod in stage.gang(1):
        stage.end(pod, "1")
    eventually(lambda: all(pod["status"]["phase"] == "Failed" for pod in stage.gang(1)), "all four have failed")
    operator.start()
    status = stage.wait_phase("k05", "Running", attempt=2)
    assert len(status["chargedRestarts"]) == 1
    assert len(status["incidents"]) == 1


def test_k06_our_own_deletions_start_no_restart(stage: Stage) -> None:
    uid = stage.create(a_job("k06", workers=4, failurePolicy={"maxRestarts": 5, "maxDisruptions": 5}))
    stage.wait_phase("k06", "Running")
    stage.end(stage.gang(1)[2], "1")
    status = stage.wait_phase("k06", "Running", attempt=2)
    eventually(lambda: len(stage.gang(1)) == 1, "only the culprit of the first incarnation is kept")
    status = stage.status("k06")
    assert (status["attempt"], len(status["incidents"]), status.get("disruptions", [])) == (2, 1, [])
    assert status["incidents"][0]["culprit"]["index"] == 2
    assert len(stage.creates(uid)) == 8


def test_k08_what_happened_while_the_operator_was_down_is_judged_by_what_is_there(
    stage: Stage, operator: Operator
) -> None:
    stage.create(a_job("k08"))
    stage.wait_phase("k08", "Running")
    operator.kill()
    first, second = stage.gang(1)
    stage.end(first, "1")
    stage.end(second, "0")
    operator.start()
    status = stage.wait_phase("k08", "Running", attempt=2)
    assert status["incidents"][0]["culprit"]["index"] == 0
    for pod in stage.gang(2):
        stage.end(pod, "0")
    stage.wait_phase("k08", "Succeeded")


def test_k12_a_deleted_pod_restarts_the_whole_gang(stage: Stage) -> None:
    uid = stage.create(a_job("k12", workers=3))
    stage.wait_phase("k12", "Running")
    lost = stage.gang(1)[1]
    stage.delete_pod(lost)
    status = stage.wait_phase("k12", "Running", attempt=2)
    incident = status["incidents"][0]
    assert (incident["cause"], incident["charged"]) == ("PodLost", False)
    assert incident["culprit"]["podUID"] == lost["metadata"]["uid"]
    assert len(stage.gang(2)) == 3
    assert sorted(stage.creates(uid)) == sorted(
        ("worker", str(index), str(incarnation)) for incarnation in (1, 2) for index in range(3)
    )


def test_k14_a_pod_of_the_last_attempt_can_not_meet_the_new_one(stage: Stage) -> None:
    stubborn = a_template({"fake.devcluster/ignore-term": "true"}, terminationGracePeriodSeconds=20)
    stage.create(a_job("k14", template=stubborn))
    stage.wait_phase("k14", "Running")
    stage.end(stage.gang(1)[0], "1")
    stage.wait_phase("k14", "Running", attempt=2)
    assert [p["metadata"].get("deletionTimestamp") is not None for p in stage.gang(1)][1], "the old peer still stops"
    old, new = (_environment(stage.gang(incarnation)[1]) for incarnation in (1, 2))
    assert old["MASTER_ADDR"] != new["MASTER_ADDR"]
    assert old["PET_RDZV_ID"] != new["PET_RDZV_ID"]
    hosts = {p["spec"]["hostname"] for incarnation in (1, 2) for p in stage.gang(incarnation)}
    assert len(hosts) == 4


def test_k17_a_lost_first_rank_restarts_the_job_and_a_lost_budget_frees_everything(stage: Stage) -> None:
    stage.create(a_job("k17", failurePolicy={"maxDisruptions": 1}))
    stage.wait_phase("k17", "Running")
    stage.delete_pod(stage.gang(1)[0])
    stage.wait_phase("k17", "Running", attempt=2)
    stage.delete_pod(stage.gang(2)[0])
    stage.wait_phase("k17", "Failed", reason="MaxDisruptionsExceeded")
    eventually(lambda: not [p for p in stage.pods() if p["status"]["phase"] == "Running"], "nothing runs any more")


def test_a_lost_node_costs_nothing_and_is_left(stage: Stage) -> None:
    job = a_job("node", workers=2, template=a_template(cpu="3"), failurePolicy={"forceDeleteOnLostNode": True})
    stage.create(job)
    stage.wait_phase("node", "Running")
    victim = stage.gang(1)[0]["spec"]["nodeName"]
    path = f"/api/v1/nodes/{victim}"
    node = stage.cluster.request("GET", path)
    _annotate(stage, path, node, "true")
    try:
        status = stage.wait_phase("node", "Running", attempt=2)
        assert (status["incidents"][0]["cause"], status["incidents"][0]["charged"]) == ("NodeLost", False)
        assert victim not in {pod["spec"]["nodeName"] for pod in stage.gang(2)}
    finally:
        _annotate(stage, path, node, None)
    eventually(lambda: _ready(stage, path), "the node is back")


def test_an_undisturbed_life_is_cheap_and_a_quiet_job_costs_nothing(stage: Stage) -> None:
    stage.create(a_job("quiet", template=a_template({RUN_SECONDS: "12"})))
    stage.wait_phase("quiet", "Running")
    before = stage.status_writes("quiet")
    stage.wait_phase("quiet", "Succeeded")
    assert stage.status_writes("quiet") <= before + 2
    assert stage.status_writes("quiet") <= 8


def _environment(pod: dict[str, object]) -> dict[str, str]:
    container = pod["spec"]["containers"][0]  # type: ignore[index]
    return {entry["name"]: entry.get("value", "") for entry in container["env"]}


def _annotate(stage: Stage, path: str, node: dict[str, object], lost: str | None) -> None:
    name = node["metadata"]["name"]  # type: ignore[index]
    stage.cluster.kubectl("annotate", "node", name, "--overwrite", f"fake.devcluster/lost{f'={lost}' if lost else '-'}")


def _ready(stage: Stage, path: str) -> bool:
    conditions = stage.cluster.request("GET", path)["status"]["conditions"]
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
