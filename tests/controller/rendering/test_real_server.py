"""The API server takes what is rendered, keeps it as it is, and Pod Security agrees with our defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from devcluster.cluster import Cluster
from devcluster.errors import DevClusterError
from meshwright.rendering.gang import FrozenPlan, RenderSettings, pod_manifest, service_manifest
from tests.controller.rendering.jobs import TORCHRUN, a_container, a_job, a_role, a_trained_job, frozen

pytestmark = pytest.mark.cluster

IN_ZONE = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}
NAMED = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["node-7"]}]}
AFFINITY = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [IN_ZONE, NAMED]}}}


PATHS = {"NetworkPolicy": "networkpolicies"}


def try_out(cluster: Cluster, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """What the API server would have stored."""
    root = "/api/v1" if manifest["apiVersion"] == "v1" else f"/apis/{manifest['apiVersion']}"
    plural = PATHS.get(manifest["kind"], f"{manifest['kind'].lower()}s")
    path = f"{root}/namespaces/{manifest['metadata']['namespace']}/{plural}?dryRun=All"
    answer: dict[str, Any] = cluster.request("POST", path, manifest)
    return answer


def lost(sent: object, stored: object, path: str = "") -> list[str]:
    """Paths whose value did not come through; what the server adds is not of interest."""
    if isinstance(sent, Mapping) and isinstance(stored, Mapping):
        return [p for key, value in sent.items() for p in lost(value, stored.get(key), f"{path}.{key}")]
    if isinstance(sent, list) and isinstance(stored, list) and len(sent) <= len(stored):
        return [p for i, value in enumerate(sent) for p in lost(value, stored[i], f"{path}[{i}]")]
    return [] if sent == stored else [path]


def enforce(cluster: Cluster, namespace: str, level: str) -> None:
    cluster.kubectl("label", "namespace", namespace, f"pod-security.kubernetes.io/enforce={level}")


def a_plan(namespace: str, settings: RenderSettings) -> FrozenPlan:
    rich = a_role(
        2,
        *TORCHRUN,
        gpus_per_pod=8,
        name="rich",
        container={"resources": {"requests": {"cpu": "500m"}}},
        affinity=AFFINITY,
        initContainers=[a_container("fetch", name="fetch")],
    )
    volume = {"name": "scratch", "mountPath": "/scratch", "emptyDir": {"sizeLimit": "1Gi"}}
    settings = replace(settings, scrapers=({"namespaceSelector": {}, "podSelector": {"matchLabels": {"a": "b"}}},))
    return frozen(a_job(a_role(2), rich, namespace=namespace, volumes=[volume]), settings=settings)


def test_everything_is_stored_as_it_was_rendered_even_where_pod_security_is_restricted(
    cluster: Cluster, namespace: str
) -> None:
    enforce(cluster, namespace, "restricted")
    labels = cluster.request("GET", f"/api/v1/namespaces/{namespace}")["metadata"]["labels"]
    plan = a_plan(namespace, RenderSettings.for_namespace(labels))
    manifests = [
        service_manifest(plan),
        plan.plan_config_map(),
        plan.placement_config_map(),
        *plan.objects,
        *(pod_manifest(plan, *member) for member in plan.members),
    ]
    assert len(manifests) == 8
    for manifest in manifests:
        assert lost(manifest, try_out(cluster, manifest)) == []


def test_pods_of_the_trainer_and_of_the_agent_are_restricted_by_themselves(cluster: Cluster, namespace: str) -> None:
    enforce(cluster, namespace, "restricted")
    settings = RenderSettings(trainer_image="trainer:1", agent_image="operator:1", heartbeat_url="http://operator:1")
    trained = a_trained_job({"name": "worker", "gpusPerPod": 2}, namespace=namespace, code={"configMap": "mine"})
    wrapped = a_job(a_role(1), namespace=namespace, agent="Inject")
    for job, chosen in ((trained, settings), (wrapped, replace(settings, run_as_non_root=True))):
        pod = pod_manifest(frozen(job, settings=chosen), "worker", 0)
        assert lost(pod, try_out(cluster, pod)) == []


def test_stock_images_that_run_as_root_are_taken_unless_the_namespace_is_restricted(
    cluster: Cluster, namespace: str
) -> None:
    pod = pod_manifest(a_plan(namespace, RenderSettings()), "worker", 0)
    enforce(cluster, namespace, "baseline")
    assert lost(pod, try_out(cluster, pod)) == []
    cluster.kubectl("label", "--overwrite", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    with pytest.raises(DevClusterError, match="runAsNonRoot"):
        try_out(cluster, pod)
