"""Fabric profiles on a real API server: who gets which, what is refused before any pod, and what outlives the pods.

The network itself is not here: no adapter, no NVLink. What NVIDIA's driver does for a ComputeDomain the tests do in its
place: channels as devices of the nodes, and a claim template for each domain.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from devcluster.errors import ApiError
from meshwright_api import names
from tests.installing import SYSTEM, install
from tests.system.operators import Operator
from tests.system.stage import Json, Stage, a_job, a_template, eventually

pytestmark = [pytest.mark.cluster, pytest.mark.slow]

PROFILES: list[dict[str, Any]] = [
    {"name": "nvl", "preset": "MNNVL"},
    {"name": "ib", "nodes": {"matchLabels": {"fabric": "ib"}}, "env": {"NCCL_IB_HCA": "mlx5"}},
    {"name": "host", "preset": "TCP", "hostNetwork": True},
    {"name": "locked", "capabilities": ["IPC_LOCK"]},
]
DOMAINS = "/apis/resource.nvidia.com/v1beta1/namespaces/{}/computedomains"
OPEN: Json = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
COMPUTE_DOMAINS: Json = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "computedomains.resource.nvidia.com"},
    "spec": {
        "group": "resource.nvidia.com",
        "scope": "Namespaced",
        "names": {"kind": "ComputeDomain", "plural": "computedomains", "singular": "computedomain"},
        "versions": [{"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": OPEN}}],
    },
}
DRIVER = "compute-domain.nvidia.com"
CHANNELS: Json = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]},
}
CLAIM: Json = {"devices": {"requests": [{"name": "channel", "exactly": {"deviceClassName": DRIVER}}]}}
POOLS = {"rack-0": "nvidia.com/gpu.clique=c.0", "rack-1": "nvidia.com/gpu.clique=c.1", "ib": "fabric=ib"}
"""Nodes by the pool that jobs of a test select, one of a kind each: what one test does leaves the others alone."""


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own with four nodes: two racks of NVLink, one node of InfiniBand, one of nothing."""
    with Cluster.start(tmp_path_factory.mktemp("fabric")) as cluster:
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(COMPUTE_DOMAINS))
        nodes = cluster.start_nodes(mode="fake", count=4, name_prefix="n", cpus="8", memory="64Gi", gpus=8)
        found = [item["metadata"]["name"] for item in cluster.request("GET", "/api/v1/nodes")["items"]]
        for name, (pool, label) in zip(sorted(found), [*POOLS.items(), ("plain", "x=y")], strict=True):
            cluster.kubectl("label", "node", name, label, f"pool={pool.partition('-')[0]}")
            cluster.kubectl("apply", "-f", "-", stdin=json.dumps(channels_of(name)))
        cluster.kubectl("apply", "-f", "-", stdin=json.dumps(CHANNELS))
        eventually(lambda: served(cluster), "ComputeDomains are served")
        yield cluster
        nodes.stop()


def served(cluster: Cluster) -> bool:
    """Whether the kind can be listed; some time after its definition was stored the server still says 404 or 429."""
    try:
        cluster.request("GET", DOMAINS.format("default"))
    except ApiError:
        return False
    return True


def channels_of(node: str) -> Json:
    """The channels of a node, as the driver tells of them."""
    spec = {
        "driver": DRIVER,
        "nodeName": node,
        "pool": {"name": node, "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": f"channel-{i}"} for i in range(4)],
    }
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": node}, "spec": spec}


@pytest.fixture(scope="module")
def operator(fabric: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator with those profiles and the rights that the chart gives it for them."""
    folder = tmp_path_factory.mktemp("operator")
    (folder / "profiles.yaml").write_text(yaml.safe_dump({"profiles": PROFILES}))
    account = install(fabric, "--set-json", f"profiles={json.dumps(PROFILES)}")
    running = Operator(account, folder, SYSTEM, profiles_file=Path(folder, "profiles.yaml"))
    running.start()
    yield running
    if running.running():
        running.stop()


@pytest.fixture
def stage(fabric: Cluster, operator: Operator, request: pytest.FixtureRequest) -> Iterator[Stage]:
    name = request.node.name.replace("_", "-")[:50].rstrip("-")
    fabric.create_namespace(name)
    yield Stage(fabric, name)
    fabric.kubectl("delete", "namespace", name, "--wait=false")


def job(name: str, pool: str, workers: int = 1, gpus: int = 1, **spec: Any) -> Json:
    made = a_job(name, workers=workers, template=a_template(nodeSelector={"pool": pool}), **spec)
    made["spec"]["roles"][0]["gpusPerPod"] = gpus
    return made


def env_of(pod: Json) -> dict[str, str]:
    return {v["name"]: v.get("value", "") for v in pod["spec"]["containers"][0]["env"]}


def finalizers(stage: Stage) -> set[str]:
    """Of all jobs of the namespace."""
    jobs = stage.cluster.request("GET", stage.jobs_path())["items"]
    return {word for job in jobs for word in job["metadata"].get("finalizers") or ()}


def domains(stage: Stage) -> list[Json]:
    return list(stage.cluster.request("GET", DOMAINS.format(stage.namespace))["items"])


def serve(stage: Stage, count: int) -> list[Json]:
    """Waits for that many domains and makes their claim templates."""
    eventually(lambda: len(domains(stage)) == count, f"{count} ComputeDomains")
    made = domains(stage)
    path = f"/apis/resource.k8s.io/v1/namespaces/{stage.namespace}/resourceclaimtemplates"
    for domain in made:
        name = domain["spec"]["channel"]["resourceClaimTemplate"]["name"]
        stage.cluster.request("POST", path, {"metadata": {"name": name}, "spec": {"spec": CLAIM}})
    return made


def test_nodes_choose_the_profile_and_a_name_overrides_them(stage: Stage) -> None:
    stage.create(job("by-nodes", "ib"))
    stage.create(job("by-name", "ib", profile="locked"))
    stage.create(job("neither", "plain"))
    for name in ("by-nodes", "by-name", "neither"):
        stage.wait_phase(name, "Running")
    pods = {name: stage.pods(**{names.LABEL_JOB: name})[0] for name in ("by-nodes", "by-name", "neither")}
    assert {name: env_of(pod).get("NCCL_IB_HCA") for name, pod in pods.items()} == {
        "by-nodes": "mlx5",
        "by-name": None,
        "neither": None,
    }
    added = {n: p["spec"]["containers"][0]["securityContext"]["capabilities"].get("add") for n, p in pods.items()}
    assert added == {"by-nodes": None, "by-name": ["IPC_LOCK"], "neither": None}


def test_an_unknown_profile_is_answered_with_those_there_are_until_it_is_mended(stage: Stage) -> None:
    uid = stage.create(job("typo", "plain", profile="ibx"))
    stage.wait_phase("typo", "Pending", reason=names.REASON_UNKNOWN_PROFILE)
    assert "no profile ibx; use one of nvl, ib, host, locked" in stage.condition("typo", names.SCHEDULED)["message"]
    assert stage.creates(uid) == []
    stage.change("typo", suspend=True)
    stage.wait_phase("typo", "Suspended")
    stage.change("typo", profile="locked")
    stage.change("typo", suspend=False)
    stage.wait_phase("typo", "Running")


def test_what_pod_security_would_refuse_is_refused_before_any_pod(stage: Stage) -> None:
    stage.cluster.kubectl("label", "namespace", stage.namespace, "pod-security.kubernetes.io/enforce=baseline")
    uid = stage.create(job("open", "plain", workers=2, profile="locked"))
    stage.wait_phase("open", "Pending", reason=names.REASON_POD_SECURITY)
    message = stage.condition("open", names.SCHEDULED)["message"]
    assert "capabilities.add: IPC_LOCK, of profile locked, is refused by Pod Security level baseline" in message
    assert stage.creates(uid) == []


def test_gangs_on_one_nodes_network_get_ports_of_their_own(stage: Stage) -> None:
    for name in ("one", "two", "three"):
        stage.create(job(name, "plain", profile="host"))
    for name in ("one", "two", "three"):
        stage.wait_phase(name, "Running")
    pods = stage.pods()
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 1
    assert all(pod["spec"]["hostNetwork"] for pod in pods)
    assert len({env_of(pod)["MASTER_PORT"] for pod in pods}) == 3


def test_compute_domains_are_there_before_the_pods_and_go_after_them(stage: Stage) -> None:
    uid = stage.create(job("nvl", "rack", workers=2, gpus=8))
    made = serve(stage, 2)  # The gang is in two NVLink domains.
    stage.wait_phase("nvl", "Running")
    assert stage.job("nvl")["metadata"]["finalizers"] == [names.FINALIZER]
    templates = {domain["spec"]["channel"]["resourceClaimTemplate"]["name"] for domain in made}
    pods = stage.gang(1)
    claimed = {pod["spec"]["nodeName"]: pod["spec"]["resourceClaims"][0]["resourceClaimTemplateName"] for pod in pods}
    assert set(claimed.values()) == templates
    stage.end(pods[0])
    stage.wait_phase("nvl", "Running", attempt=2)
    kept = {domain["metadata"]["uid"] for domain in domains(stage)}
    assert kept == {domain["metadata"]["uid"] for domain in made}, "a restart keeps them"
    running = {pod["metadata"]["name"] for pod in stage.gang(2)}
    stage.delete("nvl")
    eventually(lambda: not stage.cluster.request("GET", stage.jobs_path())["items"], "the job is gone")
    eventually(lambda: not stage.pods(**{names.LABEL_JOB_UID: uid}), "its pods are gone")
    assert domains(stage) == []
    history = audit(stage)
    created = [kind for verb, kind, _ in history if verb == "create"]
    assert created.index("computedomains") < created.index("pods")
    removed = [(kind, name) for verb, kind, name in history if verb == "delete"]
    first = next(i for i, (kind, _) in enumerate(removed) if kind == "computedomains")
    # What had ended already is left to the garbage collector; no process of it is there to be harmed.
    assert not [name for kind, name in removed[first:] if kind == "pods" and name in running]
    assert running <= {name for _, name in removed[:first]}


def test_a_job_that_is_over_or_suspended_holds_no_compute_domain_and_needs_nobody_to_go(
    stage: Stage, operator: Operator
) -> None:
    for name, ending in (("done", "Succeeded"), ("paused", "Suspended")):
        stage.create(job(name, "rack", gpus=4))
        serve(stage, 1)
        stage.wait_phase(name, "Running")
        if ending == "Succeeded":
            stage.end(stage.pods(**{names.LABEL_JOB: name})[0], "0")
        else:
            stage.change(name, suspend=True)
        stage.wait_phase(name, ending)
        eventually(lambda: not domains(stage), "the ComputeDomain is gone")
        eventually(lambda: finalizers(stage) == set(), "the finalizer is gone")
    operator.kill()
    for name in ("done", "paused"):
        stage.delete(name)
    eventually(
        lambda: not stage.cluster.request("GET", stage.jobs_path())["items"], "both are gone without an operator"
    )
    operator.start()


def audit(stage: Stage) -> list[tuple[str, str, str]]:
    """(verb, kind, name) of everything that was created or deleted in the namespace by name, in order."""
    found = []
    for line in stage.cluster.audit_log.read_text().splitlines():
        event = json.loads(line)
        reference = event.get("objectRef") or {}
        fine = (event.get("responseStatus") or {}).get("code") in (200, 201)
        if fine and reference.get("namespace") == stage.namespace and not reference.get("subresource"):
            found.append((event["verb"], reference["resource"], reference.get("name", "")))
    return found
