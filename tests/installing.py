"""Installs Meshwright's chart on a test cluster, all but its Deployment: operators run as processes of the tests."""

from __future__ import annotations

import json
import time
from pathlib import Path

import yaml

from devcluster.cluster import Cluster
from devcluster.errors import ApiError
from meshwright_api import names

SYSTEM = "meshwright-system"
ACCOUNT = "meshwright-operator"
CHART = Path(__file__).parents[1] / "charts" / "meshwright"


def install(cluster: Cluster, *options: str) -> Path:
    """Renders the chart with helm and these options, applies it, and returns a kubeconfig of the operator's account.

    The operator of a test has the rights of the chart and no others, so a missing right fails a test.
    """
    if not _exists(cluster, f"/api/v1/namespaces/{SYSTEM}"):
        cluster.create_namespace(SYSTEM)
    rendered = cluster.helm("template", "meshwright", str(CHART), "--namespace", SYSTEM, *options).stdout
    documents = [d for d in yaml.safe_load_all(rendered) if d and d["kind"] != "Deployment"]
    text = "\n---\n".join(json.dumps(document) for document in documents)
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "--namespace", SYSTEM, "-f", "-", stdin=text)
    _wait_served(cluster)
    return cluster.kubeconfig_for_service_account(SYSTEM, ACCOUNT)


def _wait_served(cluster: Cluster) -> None:
    """A CRD is served some time after it is stored; until then the API server says 404 or 429."""
    deadline = time.monotonic() + 60
    while True:
        try:
            cluster.request("GET", f"/apis/{names.API_VERSION}/{names.PLURAL}")
            return
        except ApiError:
            if time.monotonic() > deadline:
                raise
        time.sleep(0.1)


def _exists(cluster: Cluster, path: str) -> bool:
    try:
        cluster.request("GET", path)
    except ApiError as error:
        if error.code != 404:
            raise
        return False
    return True
