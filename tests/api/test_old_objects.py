"""K57: objects that were stored before a rule existed. They stay readable, writable and deletable, and crash nobody."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from meshwright_api import InvalidJob, names, parse_job
from meshwright_api.crd.definition import custom_resource_definition
from tests.api.client import Client, eventually
from tests.api.jobs import Json, a_job, with_container

pytestmark = pytest.mark.cluster

GROUP = "before.example.dev"
"""A group of its own, so that the CRD of the other tests stays as it is."""

OLD_SPECS: dict[str, Any] = {
    "no-spec": None,
    "empty": {},
    "trainer": {"trainer": {"steps": 1}},
    "reserved": with_container(env=[{"name": "RANK"}])["spec"],
    "no-pods": {"roles": [{"name": "worker", "replicas": 0}]},
    "negative": {"roles": [{"name": "worker", "replicas": -1}]},
    "typo": {"roles": [{"name": "worker", "replcas": 1}], "precison": "BF16"},
    "many": {"roles": [{"name": f"r{i}"} for i in range(40)]},
    "name.with.dots": a_job()["spec"],
    "n" * 60: a_job()["spec"],
}

BROKEN_SPECS: dict[str, Any] = {
    "number": 5,
    "roles-number": {"roles": 5},
    "roles-null": {"roles": [None]},
    "deep": {"roles": [{"name": {"a": [1]}, "template": {"spec": {"containers": {"x": 1}}}}]},
}
"""Not even of the right types. The API server itself refuses most writes of such objects, whatever our rules."""


def _crd(schema: Json | None) -> Json:
    crd = custom_resource_definition()
    crd["metadata"] = {"name": f"{names.PLURAL}.{GROUP}"}
    crd["spec"]["group"] = GROUP
    crd["spec"]["names"] |= {"shortNames": [], "categories": []}
    if schema is not None:
        crd["spec"]["versions"][0] |= {"schema": {"openAPIV3Schema": schema}, "subresources": {}}
    return crd


@pytest.fixture(scope="module")
def old_jobs(cluster: Cluster, client: Client) -> dict[str, Json]:
    """Objects of every form, stored by a CRD without rules; the rules came afterwards."""
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(_crd(anything)))
    path = f"/apis/{GROUP}/{names.VERSION}/namespaces/default/{names.PLURAL}"
    eventually(lambda: client.call("GET", path).allowed, "the old CRD is served")
    stored = {}
    for name, spec in (OLD_SPECS | BROKEN_SPECS).items():
        job: Json = {"apiVersion": f"{GROUP}/{names.VERSION}", "kind": names.KIND, "metadata": {"name": name}}
        stored[name] = client.ask("POST", path, job if spec is None else {**job, "spec": spec})
    cluster.kubectl("apply", "--server-side", "-f", "-", stdin=yaml.safe_dump(_crd(None)))
    bad = {**copy.deepcopy(stored["negative"]), "metadata": {"name": "late"}}
    eventually(lambda: not client.call("POST", f"{path}?dryRun=All", bad).allowed, "the rules are enforced")
    return {name: {**job, "path": f"{path}/{name}"} for name, job in stored.items()}


@pytest.mark.parametrize("name", OLD_SPECS | BROKEN_SPECS)
def test_the_controller_says_what_is_wrong(client: Client, old_jobs: dict[str, Json], name: str) -> None:
    job = client.ask("GET", old_jobs[name]["path"])
    with pytest.raises(InvalidJob) as caught:
        parse_job(job)
    assert caught.value.metadata.name == name
    assert caught.value.metadata.uid == job["metadata"]["uid"]
    assert caught.value.problems


@pytest.mark.parametrize("name", OLD_SPECS)
def test_its_status_and_metadata_can_be_written(client: Client, old_jobs: dict[str, Json], name: str) -> None:
    path = old_jobs[name]["path"]
    merge = "application/merge-patch+json"
    client.ask("PATCH", f"{path}/status", {"status": {"phase": "Pending", "reason": "InvalidSpec"}}, merge)
    client.ask("PATCH", path, {"metadata": {"labels": {"seen": "yes"}}}, merge)
    read = client.ask("GET", path)
    assert read["status"]["reason"] == "InvalidSpec"
    assert read["metadata"]["labels"] == {"seen": "yes"}


def test_it_can_be_mended(client: Client, old_jobs: dict[str, Json]) -> None:
    path, merge = old_jobs["typo"]["path"], "application/merge-patch+json"
    suspended = client.call("PATCH", path, {"spec": {"suspend": True}}, merge)
    assert suspended.allowed, suspended.message
    mended = client.call("PATCH", path, {"spec": {"roles": a_job()["spec"]["roles"], "precison": None}}, merge)
    assert mended.allowed, mended.message
    assert parse_job(client.ask("GET", path)).spec.suspend


@pytest.mark.parametrize("name", ["no-spec", "negative", "name.with.dots", "reserved"])
def test_foreground_deletion_ends(client: Client, old_jobs: dict[str, Json], name: str) -> None:
    path = old_jobs[name]["path"]
    client.ask("DELETE", path, {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Foreground"})
    eventually(lambda: client.call("GET", path).code == 404, f"{name} is gone")


@pytest.mark.parametrize("name", BROKEN_SPECS)
def test_even_a_broken_object_can_be_deleted(client: Client, old_jobs: dict[str, Json], name: str) -> None:
    client.ask("DELETE", old_jobs[name]["path"])
    assert client.call("GET", old_jobs[name]["path"]).code == 404
