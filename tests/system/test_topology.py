"""Gangs on a small fat tree, on the real API server: where they sit is judged from their pods' nodes and the labels.

The levels come from a Kueue `Topology` object that does not exist yet when the operator starts.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import Cluster
from meshwright_api import names
from tests.installing import SYSTEM, install
from tests.system.operators import Operator
from tests.system.stage import Json, Stage, a_job, eventually, index_of

pytestmark = pytest.mark.cluster

NODES = 16
LABELS = ("example.com/spine", "example.com/leaf")
TOPOLOGIES = "topologies.kueue.x-k8s.io"


def where_it_stands(number: int) -> tuple[str, str]:
    """Spine and leaf of a node: two spines of two leaves of four nodes, and the order of names says nothing of it."""
    leaf = (5 * number) % 4
    # Both spines have leaves of the same names.
    return f"s{leaf // 2}", f"l{leaf % 2}"


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own, with one GPU in each node."""
    with Cluster.start(tmp_path_factory.mktemp("tree")) as cluster:
        nodes = cluster.start_nodes(mode="fake", count=NODES, name_prefix="n", cpus="4", memory="16Gi", gpus=1)
        found = [node["metadata"]["name"] for node in cluster.request("GET", "/api/v1/nodes")["items"]]
        for number, name in enumerate(sorted(found)):
            labels = dict(zip(LABELS, where_it_stands(number), strict=True))
            cluster.request("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
        yield cluster
        nodes.stop()


@pytest.fixture(scope="module")
def reading_kueue(tree: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator that is to read its levels from Kueue."""
    account = install(tree, "--set", "topology.preset=kueue")
    operator = Operator(account, tmp_path_factory.mktemp("operator"), SYSTEM, topology="kueue", resync_seconds=2)
    operator.start()
    yield operator
    operator.stop()


@pytest.fixture(scope="module")
def levels(tree: Cluster, reading_kueue: Operator, before_kueue: str) -> None:
    """Kueue's kind, and the tree as its administrator would describe it."""
    version = {
        "name": "v1beta1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    kind = {"plural": "topologies", "singular": "topology", "kind": "Topology", "listKind": "TopologyList"}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": TOPOLOGIES,
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes-sigs/kueue"},
        },
        "spec": {"group": "kueue.x-k8s.io", "names": kind, "scope": "Cluster", "versions": [version]},
    }
    tree.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    tree.kubectl("wait", "--for=condition=Established", f"crd/{TOPOLOGIES}", "--timeout=30s")
    spec = {"levels": [{"nodeLabel": label} for label in (*LABELS, "kubernetes.io/hostname")]}
    topology = {"apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "Topology", "metadata": {"name": "tree"}, "spec": spec}
    tree.kubectl("apply", "-f", "-", stdin=json.dumps(topology))
    stage = Stage(tree, before_kueue)
    eventually(lambda: bound(stage, "early", 2), "the job that waited for the levels starts")
    stage.delete("early")


@pytest.fixture(scope="module")
def before_kueue(tree: Cluster, reading_kueue: Operator) -> str:
    """Namespace of a job that insists on a level before there are any, and is told why it waits."""
    tree.create_namespace("early")
    stage = Stage(tree, "early")
    stage.create(gpus("early", 2, placement=together("leaf")))

    def told() -> str:
        return str(stage.condition("early", names.SCHEDULED).get("message", ""))

    eventually(told, "the job is told why it waits")
    assert "asks for the topology level leaf" in told()
    assert f"the cluster has no kind Topology of {TOPOLOGIES.partition('.')[2]}" in told()
    return "early"


@pytest.fixture
def empty(tree: Cluster, levels: None, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A fresh namespace on the empty tree."""
    namespace = f"t{abs(hash(request.node.name)) % 10**8}"
    eventually(lambda: not tree.request("GET", "/api/v1/pods")["items"], "no pods are left")
    tree.create_namespace(namespace)
    stage = Stage(tree, namespace)
    yield stage
    for job in tree.request("GET", stage.jobs_path())["items"]:
        stage.delete(job["metadata"]["name"])


def together(level: str) -> Json:
    return {"constraints": [{"axis": "pods", "within": level, "required": True}]}


def gpus(name: str, pods: int, **spec: Any) -> Json:
    """A job of one's own image with a GPU in each pod."""
    template = {"spec": {"containers": [{"name": "trainer", "image": "none", "command": ["train"]}]}}
    roles = [{"name": "worker", "replicas": pods, "gpusPerPod": 1, "template": template}]
    return a_job(name, roles=roles, **spec)


def a_mesh(name: str, **axes: int) -> Json:
    """A job of the built-in trainer, one rank in each pod."""
    trainer = {
        "model": {"name": "gpt3", "preset": "tiny"},
        "data": {"source": "/data"},
        "steps": 10,
        "parallelism": axes,
    }
    pods = 1
    for size in axes.values():
        pods *= size
    return a_job(name, roles=[{"name": "worker", "replicas": pods, "gpusPerPod": 1, "template": {}}], trainer=trainer)


def bound(stage: Stage, job: str, pods: int) -> list[Json]:
    """The job's pods, by index, once every one has a node."""
    mine = [p for p in stage.pods(**{names.LABEL_JOB: job}) if p["spec"].get("nodeName")]
    return sorted(mine, key=index_of) if len(mine) == pods else []


def seats(stage: Stage, job: str, pods: int) -> list[tuple[str, ...]]:
    """Spine, leaf and node of every pod, by index: by the labels of the nodes, each of which holds one pod."""
    found = eventually(lambda: bound(stage, job, pods), f"all pods of {job} have nodes")
    nodes = {n["metadata"]["name"]: n for n in stage.cluster.request("GET", "/api/v1/nodes")["items"]}
    at = [nodes[pod["spec"]["nodeName"]]["metadata"] for pod in found]
    assert len({node["name"] for node in at}) == pods
    return [(*(node["labels"][label] for label in LABELS), node["name"]) for node in at]


def test_a_mesh_lands_nested_and_its_neighbours_have_neighbouring_ranks(empty: Stage) -> None:
    empty.create(a_mesh("mesh", data=4, shard=2))
    at = seats(empty, "mesh", 8)
    leaves = [seat[:2] for seat in at]
    assert len({spine for spine, _ in leaves}) == 1
    assert Counter(Counter(leaves).values()) == {4: 2}
    assert all(leaves[rank] == leaves[rank + 1] for rank in range(0, 8, 2)), "a group of shards is in one leaf"
    assert sum(a != b for a, b in itertools.pairwise(leaves)) == 1, "consecutive ranks are neighbours"

    status = empty.status("mesh")
    told = {level.pop("level"): level for level in status["placement"]["levels"]}
    assert {name: level["domains"] for name, level in told.items()} == {"spine": 1, "leaf": 2, "node": 8}
    assert (told["spine"]["crossingBytes"], told["spine"]["firstFitBytes"] > 0) == (0, True)
    assert 0 < told["leaf"]["crossingBytes"] < told["leaf"]["firstFitBytes"]
    assert not any(seat[2] in json.dumps(status["placement"]) for seat in at)

    plan = next(
        item
        for item in empty.cluster.request("GET", f"/api/v1/namespaces/{empty.namespace}/configmaps")["items"]
        if (item["metadata"].get("labels") or {}).get(names.LABEL_COMPONENT) == "plan"
    )
    assert plan["metadata"]["annotations"][names.ANNOTATION_PLAN] == status["planSHA256"]
    groups = json.loads(plan["data"]["plan.json"])["groups"]
    by_leaf = {group["domain"]: group["ranks"] for group in groups if group["level"] == "leaf"}
    assert by_leaf == {"/".join(leaves[0]): "0-3", "/".join(leaves[4]): "4-7"}


def test_a_requirement_that_cannot_be_met_waits_with_counts_and_freed_capacity_wakes_it(empty: Stage) -> None:
    cordoned = cordon_one_of_each_leaf(empty.cluster)
    try:
        empty.create(gpus("tight", 4, placement=together("leaf")))
        empty.wait_phase("tight", "Pending", reason="WaitingForCapacity")
        said = empty.condition("tight", names.SCHEDULED)["message"]
        assert "needs 4 pods under one leaf (pods), each with 1 nvidia.com/gpu" in said
        assert "the best leaf has room for 3: of its 4 nodes 1 that the pods may not use, 3 with room" in said
        assert not empty.pods()
    finally:
        for name in cordoned:
            cordon(empty.cluster, name, on=False)
    assert len({seat[:2] for seat in seats(empty, "tight", 4)}) == 1


def test_a_level_that_is_none_is_named_with_those_that_are(empty: Stage) -> None:
    empty.create(gpus("racks", 2, placement=together("rack")))
    empty.wait_phase("racks", "Pending", reason="WaitingForCapacity")
    said = empty.condition("racks", names.SCHEDULED)["message"]
    assert "no level rack; use one of spine, leaf, node" in said


def test_whoever_is_alone_in_a_leaf_stays_so(empty: Stage) -> None:
    empty.create(gpus("alone", 1, placement={"exclusive": "leaf"}))
    (mine,) = seats(empty, "alone", 1)
    empty.create(gpus("crowd", 12))
    others = seats(empty, "crowd", 12)
    assert mine[:2] not in {seat[:2] for seat in others}
    empty.create(gpus("late", 1))
    empty.wait_phase("late", "Pending", reason="WaitingForCapacity")
    assert (
        "4 nodes left out, in domains that one job has to itself" in empty.condition("late", names.SCHEDULED)["message"]
    )
    empty.delete("alone")
    assert seats(empty, "late", 1)[0][:2] == mine[:2]


def test_replicas_are_spread_and_servers_stand_near(empty: Stage) -> None:
    job = gpus("spread", 4, placement={"spread": "leaf"})
    empty.create(job)
    assert len({seat[:2] for seat in seats(empty, "spread", 4)}) == 4
    job = gpus("near", 2)
    server = {"name": "server", "replicas": 1, "near": "worker", "template": job["spec"]["roles"][0]["template"]}
    job["spec"]["roles"].append(server)
    empty.create(job)
    eventually(lambda: bound(empty, "near", 3), "workers and server have nodes")
    nodes = {
        n["metadata"]["name"]: n["metadata"]["labels"] for n in empty.cluster.request("GET", "/api/v1/nodes")["items"]
    }
    leaves = [tuple(nodes[p["spec"]["nodeName"]][label] for label in LABELS) for p in bound(empty, "near", 3)]
    assert len(set(leaves)) == 1


def test_pods_that_want_none_of_their_own_kind_beside_them_are_placed_so(empty: Stage) -> None:
    """Where a pod is pinned to a node that its own anti-affinity forbids, kube-scheduler would never bind it."""
    apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "apart"}}}
    template: Json = {
        "metadata": {"labels": {"app": "apart"}},
        "spec": {
            "containers": [{"name": "trainer", "image": "none", "command": ["train"]}],
            "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}},
        },
    }
    empty.create(a_job("apart", roles=[{"name": "worker", "replicas": 10, "template": template}]))
    assert len({seat[2] for seat in seats(empty, "apart", 10)}) == 10
    empty.create(a_job("more", roles=[{"name": "worker", "replicas": NODES - 9, "template": template}]))
    empty.wait_phase("more", "Pending", reason="WaitingForCapacity")
    said = empty.condition("more", names.SCHEDULED)["message"]
    assert "each need a node without pods with app=apart; there is room for 6" in said
    assert "10 busy (a node without pods with app=apart)" in said
    empty.delete("apart")
    assert len({seat[2] for seat in seats(empty, "more", NODES - 9)}) == NODES - 9


def cordon(cluster: Cluster, name: str, *, on: bool) -> None:
    cluster.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": on or None}})


def cordon_one_of_each_leaf(cluster: Cluster) -> list[str]:
    first: dict[tuple[str, ...], str] = {}
    for node in cluster.request("GET", "/api/v1/nodes")["items"]:
        first.setdefault(tuple(node["metadata"]["labels"][label] for label in LABELS), node["metadata"]["name"])
    for name in first.values():
        cordon(cluster, name, on=True)
    return list(first.values())


def test_the_operator_says_nothing_but_what_it_should(reading_kueue: Operator, levels: None) -> None:
    log = Path(reading_kueue.log).read_text()
    assert "gangs are placed without a topology" in log
    assert "Traceback" not in log
