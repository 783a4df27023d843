"""What an administrator installs before anybody can run a job: the kind, its policies, and the operator's rights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from devcluster.cluster import Cluster
from meshwright.cluster.permissions import PERMISSIONS, Scope

ACCOUNT = "meshwright-operator"
LEASE = "meshwright-operator"
_ROOT = Path(__file__).resolve().parents[2]


def install_kind(cluster: Cluster) -> None:
    """The CRD and the admission policies; returns when the API server serves the kind."""
    crds = [str(path) for path in (_ROOT / "crds").glob("*.yaml")]
    cluster.kubectl("apply", "--server-side", *(f"--filename={path}" for path in crds))
    cluster.kubectl("wait", "--for=condition=Established", "crd/trainingjobs.meshwright.dev", "--timeout=60s")


def install(cluster: Cluster, namespace: str) -> None:
    """A namespace with an operator's account, its rights and its Lease."""
    cluster.create_namespace(namespace)
    cluster.kubectl(
        "apply", "--filename=-", stdin=json.dumps({"kind": "List", "apiVersion": "v1", "items": _rights(namespace)})
    )


def _rights(namespace: str) -> list[dict[str, Any]]:
    rbac, meta = "rbac.authorization.k8s.io/v1", {"name": ACCOUNT, "namespace": namespace}
    subject = [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}]
    rules = {True: [], False: []}  # type: dict[bool, list[dict[str, Any]]]
    for right in PERMISSIONS:
        what = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        rules[right.scope is Scope.CLUSTER].append(
            {"apiGroups": [right.group], "resources": [what], "verbs": [right.verb]}
        )
    wide = {"name": f"{namespace}-capacity-reader"}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": LEASE, "namespace": namespace}},
        {"apiVersion": rbac, "kind": "Role", "metadata": meta, "rules": rules[False]},
        {"apiVersion": rbac, "kind": "ClusterRole", "metadata": wide, "rules": rules[True]},
        {"apiVersion": rbac, "kind": "RoleBinding", "metadata": meta, "subjects": subject,
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": ACCOUNT}},
        {"apiVersion": rbac, "kind": "ClusterRoleBinding", "metadata": wide, "subjects": subject,
         "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": wide["name"]}},
    ]  # fmt: skip
