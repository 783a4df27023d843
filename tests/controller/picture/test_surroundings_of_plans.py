"""`meshwright plan` goes by what the operator goes by: profiles, namespaces, the default class, domains of one job."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshwright.cli import main
from meshwright.picture.inventory import Inventory
from meshwright.picture.model import Sited, State
from meshwright.picture.siting import Rules, Siting
from meshwright.rendering.fabric.reading import profiles_of
from tests.controller.cluster.stub_kube import StubKube, status
from tests.controller.picture.scenes import (
    TOPOLOGY,
    a_gang_pod,
    a_job,
    a_mesh_job,
    a_node,
    a_pod,
    parsed,
    two_by_two_by_two,
)

Json = dict[str, Any]
IB: Json = {"name": "ib", "nodes": {}, "resources": {"rdma/ib": 1}}
HOST: Json = {"name": "host", "nodes": {}, "hostNetwork": True}
RESTRICTED = {"team": {"pod-security.kubernetes.io/enforce": "restricted"}}


def on_fabric(count: int) -> list[Json]:
    """Four nodes, of which the first `count` have a device."""
    nodes = [a_node(f"n{i}") for i in range(4)]
    for node in nodes[:count]:
        node["status"]["allocatable"]["rdma/ib"] = "1"
    return nodes


def sited(job: Json, inventory: Inventory, **rules: Any) -> Sited:
    found = Siting(inventory, TOPOLOGY, "t", Rules(**rules)).job(parsed(job)).job
    assert found is not None
    return found


@pytest.fixture
def plan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[Json, str]]:
    """Plans a job and returns what the document says of it, and what standard error says."""

    def run(job: Json, *arguments: str, nodes: list[Json] | None = None) -> tuple[Json, str]:
        (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))
        source = ["--topology", "none"]
        if nodes is not None:
            (tmp_path / "nodes.json").write_text(json.dumps({"kind": "List", "items": nodes}))
            source += ["--nodes", str(tmp_path / "nodes.json")]
        assert main(["plan", "-f", str(tmp_path / "job.yaml"), "-o", "json", *source, *arguments]) == 0
        out, err = capsys.readouterr()
        return json.loads(out)["job"], err

    return run


@pytest.mark.parametrize(("devices", "state"), [(1, State.WAITS), (2, State.WOULD_START)])
def test_what_a_profile_gives_pods_is_counted(devices: int, state: State) -> None:
    job = sited(a_job(2), Inventory.of(on_fabric(devices)), profiles=profiles_of([IB]))
    assert job.state is state
    assert ("rdma/ib" in job.message) is (state is State.WAITS)


def test_the_nodes_of_a_profile_narrow_where_the_job_goes() -> None:
    only = {"name": "ib", "nodes": {"matchLabels": {"fabric": "ib"}}}
    nodes = [a_node(f"n{i}", labels={"fabric": "ib"} if i > 1 else {}) for i in range(4)]
    job = a_job(3)
    job["spec"]["profile"] = "ib"
    found = sited(job, Inventory.of(nodes), profiles=profiles_of([only]))
    assert found.state is State.WAITS
    assert "2 outside the pods' node selector or affinity" in found.message


def test_a_job_that_cannot_have_pods_says_why() -> None:
    job = a_job(2)
    job["spec"]["profile"] = "infiniband"
    found = sited(job, Inventory.of(on_fabric(4)), profiles=profiles_of([IB]))
    assert (found.state, found.reason) == (State.WAITS, "UnknownProfile")
    assert "use one of ib" in found.message
    refused = sited(a_job(2), Inventory.of(on_fabric(4)), profiles=profiles_of([HOST]), namespace_labels=RESTRICTED)
    assert (refused.state, refused.reason) == (State.WAITS, "PodSecurityConflict")
    assert "profile host" in refused.message


def test_a_job_that_cannot_have_pods_is_not_ahead_of_anyone() -> None:
    first = a_job(4, name="first", uid="1") | {"status": {"phase": "Pending"}}
    first["spec"]["profile"] = "gone"
    first["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    second = a_job(4)
    second["metadata"]["creationTimestamp"] = "2021-01-01T00:00:00Z"
    inventory = Inventory.of(on_fabric(4), jobs=[first])
    assert sited(second, inventory, profiles=profiles_of([IB])).state is State.WOULD_START


def test_what_runs_is_shown_whatever_became_of_its_profile() -> None:
    job = a_job(1)
    job["spec"]["profile"] = "gone"
    found = sited(job, Inventory.of(on_fabric(0), [a_gang_pod(0, "n2")]), profiles=profiles_of([IB]))
    assert found.state is State.RUNS


def test_profiles_come_from_a_file(plan: Callable[..., tuple[Json, str]], tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(yaml.safe_dump({"profiles": [IB]}))
    known = ("--profiles-file", str(tmp_path / "values.yaml"))
    job, err = plan(a_job(2), *known, nodes=on_fabric(0))
    assert (job["state"], err) == ("Waits", "")
    assert "rdma/ib" in job["message"]
    named = a_job(2)
    named["spec"]["profile"] = "ib"
    assert plan(named, nodes=on_fabric(0))[1].startswith("note: what pods get of profile ib is left out of account")


@pytest.mark.parametrize("text", ["profiles: [{name: ib, resources: {rdma/ib: many}}]", "profiles: {", "none"])
def test_profiles_that_cannot_be_used(text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "values.yaml"
    file.write_text(text)
    for given in (file, tmp_path / "missing.yaml"):
        assert main(["topology", "--nodes", "/dev/null", "--profiles-file", str(given)]) == 1
        assert str(given) in capsys.readouterr().err


@pytest.fixture
def served(stub: StubKube, kubeconfig: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> StubKube:
    """A cluster with four nodes and the chart's ConfigMap of profiles."""
    monkeypatch.setenv("KUBECONFIG", kubeconfig(stub.url))
    for node in on_fabric(1):
        stub.put("nodes", node)
    config_map = {"metadata": {"name": "mw-operator-profiles", "namespace": "system"}}
    stub.put("configmaps", {**config_map, "data": {"profiles.yaml": yaml.safe_dump({"profiles": [IB, HOST]})}})
    stub.put("namespaces", {"metadata": {"name": "team", "labels": RESTRICTED["team"]}})
    return stub


def test_profiles_and_namespaces_of_the_cluster(served: StubKube, plan: Callable[..., tuple[Json, str]]) -> None:
    job, err = plan(a_job(2))
    assert (job["state"], err) == ("Waits", "")
    assert "3 too small (rdma/ib)" in job["message"]
    asked = next(seen for seen in served.seen if seen.path == "/api/v1/configmaps")
    assert asked.query["labelSelector"] == "app.kubernetes.io/name=meshwright,app.kubernetes.io/component=operator"
    named = a_job(2)
    named["spec"]["profile"] = "host"
    assert plan(named)[0]["reason"] == "PodSecurityConflict"


def test_whoever_may_not_read_the_profiles_is_told(served: StubKube, plan: Callable[..., tuple[Json, str]]) -> None:
    served.fault = lambda request: status(403, "Forbidden", "no") if request.path.endswith("/configmaps") else None
    job, err = plan(a_job(2))
    assert job["state"] == "WouldStart"
    assert "no right to list configmaps" in err
    assert "--profiles-file" in err


def test_profiles_of_two_operators_that_differ(served: StubKube, plan: Callable[..., tuple[Json, str]]) -> None:
    other = {"metadata": {"name": "b", "namespace": "other"}, "data": {"profiles.yaml": "profiles: []"}}
    served.put("configmaps", other)
    assert "ConfigMap other/b and ConfigMap system/mw-operator-profiles differ" in plan(a_job(2))[1]


def test_domains_that_a_running_job_has_to_itself_are_closed() -> None:
    alone = a_job(1)
    alone["spec"]["placement"] = {"exclusive": "leaf"}
    inventory = two_by_two_by_two(a_gang_pod(0, "n0"))
    shared = Inventory(inventory.nodes, inventory.pods, (parsed(alone),))
    assert sited(a_job(7, uid="other"), inventory).state is State.WOULD_START
    found = sited(a_job(7, uid="other"), shared)
    assert found.state is State.WAITS
    assert "2 nodes left out, in domains that one job has to itself" in found.message


def test_a_job_without_a_class_has_the_clusters_default_class() -> None:
    first = a_job(4, name="first", uid="1") | {"status": {"phase": "Pending"}}
    first["metadata"]["creationTimestamp"] = "2020-01-01T00:00:00Z"
    first["spec"]["queue"] = {"priorityClassName": "low"}
    inventory = Inventory.of(on_fabric(4), jobs=[first])
    assert sited(a_job(4), inventory, priorities={"low": 5}).state is State.WAITS
    assert sited(a_job(4), inventory, priorities={"low": 5, "": 9}).state is State.WOULD_START


@pytest.mark.parametrize(("waited", "state"), [(59, State.WOULD_START), (61, State.WAITS)])
def test_who_waits_is_passed_for_an_hour(waited: int, state: State) -> None:
    """Of five nodes two are busy, and a gang of four waits: it keeps one place, of four nodes, and later all five."""
    now = datetime(2026, 1, 1, tzinfo=UTC)
    running, first = a_job(2), a_job(4, name="first", uid="1") | {"status": {"phase": "Pending"}}
    first["metadata"]["creationTimestamp"] = (now - timedelta(minutes=waited)).strftime("%Y-%m-%dT%H:%M:%SZ")
    nodes = [a_node(f"n{i}") for i in range(5)]
    pods = [a_gang_pod(0, "n0"), a_gang_pod(1, "n1")]
    inventory = Inventory.of(nodes, pods, [running, first])
    last = a_job(1, name="last", uid="2")
    last["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    assert sited(last, inventory, now=now).state is state


def test_what_is_given_up_is_said() -> None:
    job = a_mesh_job(3)
    job["spec"]["placement"] = {"constraints": [{"axis": "pods", "within": "leaf"}]}
    found = sited(job, two_by_two_by_two())
    assert found.state is State.WOULD_START
    assert found.message == "Preferred, but not to be had: pods within leaf."


def test_what_is_in_a_file_twice_counts_once(plan: Callable[..., tuple[Json, str]]) -> None:
    assert len(Inventory.of(on_fabric(4) * 2).nodes) == 4
    pods = [a_pod("p", "n0", 4)] * 2
    assert plan(a_job(7, gpus=4), nodes=[*on_fabric(4), *pods])[0]["state"] == "WouldStart"
    assert plan(a_job(8, gpus=4), nodes=[*on_fabric(4), *pods])[0]["state"] == "Waits"


def test_a_job_in_a_list_is_found(plan: Callable[..., tuple[Json, str]]) -> None:
    """As `kubectl get trainingjobs -o yaml` writes it."""
    assert plan({"kind": "List", "items": [a_job(1)]}, nodes=on_fabric(4))[0]["state"] == "WouldStart"


@pytest.mark.parametrize(
    ("item", "said"),
    [
        ({"kind": "Node", "metadata": None}, "a Node has no metadata.name"),
        ({"kind": "Node", "metadata": {"name": "a"}, "spec": {"taints": [{"key": "x"}]}}, "Node a is not as"),
        (a_node("a") | {"status": {"allocatable": {"cpu": "many"}}}, "Node a: 'many' is no quantity"),
        ({"kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeName": "n", "containers": ["x"]}}, "Pod p is not as"),
    ],
)
def test_objects_that_no_server_wrote_are_named(
    item: Json, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "nodes.json"
    file.write_text(json.dumps({"kind": "List", "items": [a_node("n"), item, "x"]}))
    assert main(["topology", "--nodes", str(file)]) == 1
    err = capsys.readouterr().err
    assert said in err
    assert str(file) in err


def test_levels_by_name_and_of_ones_own_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    """As for the operator."""
    assert main(["topology", "--nodes", "/dev/null", "--topology", "gke", "--topology-levels", "a=b/c"]) == 1
    assert "leave one out" in capsys.readouterr().err
