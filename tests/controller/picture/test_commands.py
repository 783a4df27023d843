"""`meshwright topology`, `plan` and `explain`, from files and from an API server."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from meshwright.cli import main
from tests.controller.cluster.stub_kube import StubKube, status
from tests.controller.picture.scenes import a_gang_pod, a_job, a_mesh_job, a_node, a_pod

Json = dict[str, Any]
LEVELS = {"cloud.google.com/gce-topology-block": "b", "cloud.google.com/gce-topology-subblock": "s"}


def gke_nodes(count: int = 4) -> list[Json]:
    """Nodes of a cloud, two under each host level."""
    hosts = [LEVELS | {"cloud.google.com/gce-topology-host": f"h{i // 2}"} for i in range(count)]
    return [a_node(f"n{i}", labels=hosts[i]) for i in range(count)]


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., str]:
    def write(name: str, *documents: Json, text: str = "") -> str:
        path = tmp_path / name
        path.write_text(text or yaml.safe_dump_all(documents))
        return str(path)

    return write


def test_plan_from_files_says_where_the_job_would_start(
    files: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = files("nodes.json", text=json.dumps({"kind": "NodeList", "items": gke_nodes()}))
    assert main(["plan", "--nodes", nodes, "-f", files("job.yaml", a_mesh_job(2)), "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["topology"]["name"] == "gke"
    assert found["topology"]["guessed"] is True
    job = found["job"]
    assert (job["state"], job["pods"], job["processes"]) == ("WouldStart", 2, 16)
    assert [(c["level"], c["domains"]) for c in job["crossing"]][-2:] == [("host", 1), ("node", 2)]
    node = found["tree"]
    while node["children"]:
        assert len(node["children"]) <= 2
        node = node["children"][0]
    assert (node["name"], node["ranks"], node["gpus"]["job"]) == ("n0", "0-7", 8)


def test_plan_of_a_job_that_waits_says_what_is_missing(
    files: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = files("nodes.yaml", *gke_nodes(), a_pod("a", "n1", 4))
    assert main(["plan", "--nodes", nodes, "-f", files("job.yaml", a_job(4))]) == 0
    out = capsys.readouterr().out
    assert "team/gpt waits: 4 pods" in out
    assert "of 4 nodes 3 with room, 1 busy (nvidia.com/gpu)" in out


def test_a_field_of_a_later_version_is_named_and_the_job_is_drawn_all_the_same(
    files: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    job = a_mesh_job(2)
    job["spec"]["queue"] = {"backend": "Volcano"}
    code = main(["plan", "--nodes", files("n.yaml", *gke_nodes()), "-f", files("job.yaml", job)])
    out, err = capsys.readouterr()
    assert code == 0
    assert "would start now" in out
    assert "spec.queue.backend" in err


@pytest.mark.parametrize(
    ("documents", "text", "said"),
    [
        ([], "{", "neither JSON nor YAML"),
        ([{"kind": "Pod"}], "", "holds no TrainingJob; give a file with exactly one"),
        ([a_job(1), a_job(2)], "", "holds 2 TrainingJobs"),
        ([a_job(1) | {"spec": {"roles": []}}], "", "the operator cannot run this job: spec"),
        ([a_job(1) | {"metadata": None}], "", "the operator cannot run this job"),
        ([a_job(1) | {"spec": None}], "", "the operator cannot run this job"),
    ],
)
def test_a_manifest_that_cannot_be_planned(
    documents: list[Json], text: str, said: str, files: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    job = files("job.yaml", *documents, text=text)
    assert main(["plan", "--nodes", files("n.yaml", *gke_nodes()), "-f", job]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert job in err


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"kind": "Pod", "metadata": {"name": "p"}}, "has no nodes; write it with: kubectl get nodes,pods"),
        (a_node("n") | {"status": {"allocatable": {"cpu": "many"}}}, "many"),
    ],
)
def test_a_file_of_nodes_that_cannot_be_read(
    node: Json, said: str, files: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topology", "--nodes", files("n.yaml", node)]) == 1
    assert said in capsys.readouterr().err


def test_a_job_in_the_file_is_drawn_by_name(files: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    nodes = files("n.yaml", *gke_nodes(), a_job(1), a_gang_pod(0, "n3"))
    assert main(["topology", "--nodes", nodes, "--job", "gpt", "-n", "team"]) == 0
    assert "team/gpt runs: 1 pod, 8 ranks" in capsys.readouterr().out
    assert main(["topology", "--nodes", nodes, "--job", "other", "-n", "team"]) == 1
    assert "no TrainingJob other in namespace team" in capsys.readouterr().err


def test_the_topology_can_be_named_or_left_out(files: Callable[..., str], capsys: pytest.CaptureFixture[str]) -> None:
    nodes = files("n.yaml", *gke_nodes())
    assert main(["topology", "--nodes", nodes, "--topology", "none"]) == 0
    assert "topology none: node" in capsys.readouterr().out
    assert main(["topology", "--nodes", nodes, "--topology", "oci"]) == 0
    assert "4 nodes without label oci.oraclecloud.com/rdma.hpc_island_id left out" in capsys.readouterr().out


def test_levels_of_ones_own_are_those_of_the_operator(
    files: Callable[..., str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = files("n.yaml", *gke_nodes())
    monkeypatch.setenv("MESHWRIGHT_TOPOLOGY_LEVELS", "row=fabric/spine,rack=cloud.google.com/gce-topology-host")
    monkeypatch.setenv("MESHWRIGHT_TOPOLOGY_BANDWIDTH", "rack=50")
    assert main(["topology", "--nodes", nodes, "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["topology"]
    assert [level["name"] for level in found["levels"]] == ["row", "rack", "node"]
    assert found["levels"][1]["bandwidth"] == 50
    assert found["guessed"] is False
    assert main(["topology", "--nodes", nodes, "--topology-levels", "no label!"]) == 1
    assert "no label!" in capsys.readouterr().err
    assert main(["topology", "--nodes", nodes, "--topology", "kueue", "--topology-levels", ""]) == 1
    assert "--topology-levels" in capsys.readouterr().err


@pytest.fixture
def served(stub: StubKube, kubeconfig: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> StubKube:
    """An API server that the commands find, with a running job."""
    monkeypatch.setenv("KUBECONFIG", kubeconfig(stub.url))
    for node in gke_nodes():
        stub.put("nodes", node)
    stub.put("pods", a_gang_pod(0, "n2"))
    job = a_job(1)
    scheduled = {
        "type": "Scheduled",
        "status": "False",
        "reason": "WaitingForCapacity",
        "message": "2 nodes are missing",
    }
    condition = scheduled | {"lastTransitionTime": "2026-01-01T00:00:00Z"}
    placement = {"levels": [{"level": "leaf", "domains": 3, "crossingBytes": 2_000_000_000, "firstFitBytes": 7_000}]}
    status_ = {"phase": "Pending", "conditions": [condition], "placement": placement}
    stub.put("trainingjobs", job | {"status": status_})
    return stub


def test_explain_reads_the_cluster_and_writes_nothing(served: StubKube, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "gpt", "-n", "team"]) == 0
    out = capsys.readouterr().out
    assert "team/gpt runs: 1 pod, 8 ranks" in out
    assert "node n2" in out
    writes = [seen.path for seen in served.seen if seen.method != "GET"]
    assert set(writes) == {"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}


@pytest.mark.parametrize("right", [("list", "nodes"), ("list", "pods")])
def test_who_may_not_see_the_cluster_gets_counts_and_no_names(
    right: tuple[str, str], served: StubKube, capsys: pytest.CaptureFixture[str]
) -> None:
    served.denied.add(right)
    assert main(["explain", "gpt", "-n", "team"]) == 0
    out = capsys.readouterr().out
    assert "team/gpt: Pending" in out
    assert "WaitingForCapacity: 2 nodes are missing" in out
    assert "leaf         3      2 GB            7 kB" in out
    assert f"list {right[1]} cluster-wide" in out
    assert "n2" not in out.replace("team", "")
    assert not [seen for seen in served.seen if seen.path == f"/api/v1/{right[1]}"], "nobody asks for what is denied"

    assert main(["explain", "gpt", "-n", "team", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["job"]["operatorMessage"] == "WaitingForCapacity: 2 nodes are missing"
    assert found["job"]["crossing"][0]["bytesPerStep"] == 2_000_000_000
    assert (found["tree"], found["topology"]) == (None, None)

    assert main(["topology"]) == 1
    assert "--nodes FILE" in capsys.readouterr().err


def test_kueues_levels_that_are_not_there(served: StubKube, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--topology", "kueue"]) == 1
    assert "no kind Topology of kueue.x-k8s.io" in capsys.readouterr().err


def test_a_job_that_is_not_there(served: StubKube, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", "none", "-n", "team"]) == 1
    assert "no TrainingJob none in namespace team; choose another with -n" in capsys.readouterr().err


def test_without_a_namespace_the_contexts_own_is_taken(
    served: StubKube, kubeconfig: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(kubeconfig(served.url))
    config = json.loads(path.read_text())
    config["contexts"][0]["context"]["namespace"] = "team"
    path.write_text(json.dumps(config))
    assert main(["explain", "gpt"]) == 0
    assert "team/gpt runs" in capsys.readouterr().out


def test_a_cluster_that_cannot_be_read(
    served: StubKube, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served.fault = lambda request: status(500, "InternalError", "etcd is away")
    assert main(["topology"]) == 1
    assert "cannot read from the cluster: 500 InternalError: etcd is away" in capsys.readouterr().err
    monkeypatch.setenv("KUBECONFIG", "/does/not/exist")
    assert main(["topology"]) == 1
    assert "/does/not/exist" in capsys.readouterr().err


def test_it_is_a_plugin_of_kubectl() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "operator" / "pyproject.toml").read_text())["project"]
    assert project["scripts"]["kubectl-meshwright"] == project["scripts"]["meshwright"]
