"""What an administrator installs before anybody can run a job, all of it from the chart.

The Deployment is left out: operators run here as processes. Their rights are the chart's, so a missing one is found.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from devcluster.cluster import Cluster
from devcluster.errors import ApiError

ACCOUNT = LEASE = "meshwright-operator"
_CHART = Path(__file__).resolve().parents[2] / "charts" / "meshwright"
_SHARED = frozenset({"CustomResourceDefinition", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"})
_OWN = frozenset({"ServiceAccount", "Role", "RoleBinding", "Lease", "Secret", "ClusterRole", "ClusterRoleBinding"})


def install_kind(cluster: Cluster) -> None:
    """The CRD and the admission policies; returns when the API server serves the kind."""
    _apply(cluster, [item for item in _render(cluster, "default", "default") if item["kind"] in _SHARED])
    cluster.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.meshwright.dev", "--timeout=60s")


def install(cluster: Cluster, home: str, namespace: str) -> None:
    """A namespace for jobs, and one with an operator's account, its Lease, and its rights over the other."""
    for name in (home, namespace):
        _make_namespace(cluster, name)
    items = [item for item in _render(cluster, home, namespace) if item["kind"] in _OWN]
    for item in items:
        if item["kind"] == "ClusterRoleBinding":
            item["metadata"]["name"] += f"-{namespace}"  # one per release; here many releases share a cluster
    _apply(cluster, items)


def _make_namespace(cluster: Cluster, name: str) -> None:
    """A slot's namespaces are made by the first test that uses it, and used by the next ones too."""
    try:
        cluster.create_namespace(name)
    except ApiError as error:
        if error.code != 409:
            raise


def _render(cluster: Cluster, home: str, namespace: str) -> Iterator[dict[str, Any]]:
    rendered = cluster.helm(
        "template", "meshwright", str(_CHART), "--namespace", home, "--set", f"namespaces={{{namespace}}}"
    )
    return (item for item in yaml.safe_load_all(rendered.stdout) if item)


def _apply(cluster: Cluster, items: list[dict[str, Any]]) -> None:
    document = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=document)
