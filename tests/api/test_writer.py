"""A TrainingJob gives nobody more than they had: its writer must be allowed to create pods there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from devcluster.cluster import Cluster
from meshwright_api import names
from meshwright_api.crd.policies import WRITER, policies
from tests.api.client import Client, eventually, job_path, jobs_path
from tests.api.jobs import Json, a_job, changed

pytestmark = pytest.mark.cluster

_numbers = itertools.count()


def _role(name: str, namespace: str, *rules: Json) -> Json:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": name, "namespace": namespace},
        "rules": list(rules),
    }


@pytest.fixture
def alice(installed: Cluster, client: Client, namespace: str) -> Iterator[Client]:
    """May write TrainingJobs in the namespace, and nothing else."""
    jobs = {"apiGroups": [names.GROUP], "resources": [names.PLURAL, f"{names.PLURAL}/scale"], "verbs": ["*"]}
    _grant(client, namespace, "jobs", jobs)
    made = Client(installed.server, installed.ca, installed.token(), impersonate="alice")
    eventually(lambda: made.call("GET", jobs_path(namespace)).allowed, "alice's rights are known")
    yield made
    made.close()


def _grant(client: Client, namespace: str, name: str, rule: Json) -> None:
    rbac = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    client.ask("POST", f"{rbac}/roles", _role(name, namespace, rule))
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "alice"}],
    }
    client.ask("POST", f"{rbac}/rolebindings", binding)


def test_who_may_not_create_pods_may_not_create_jobs(alice: Client, namespace: str) -> None:
    answer = alice.create(a_job(namespace=namespace))
    assert answer.code == 403
    for part in ("alice", "may not create pods", namespace, "meshwright-submitter"):
        assert part in answer.message


def test_who_may_create_pods_may_create_jobs(alice: Client, client: Client, namespace: str) -> None:
    _grant(client, namespace, "pods", {"apiGroups": [""], "resources": ["pods"], "verbs": ["create"]})
    job = a_job(namespace=namespace)
    eventually(lambda: alice.create(job).allowed, "alice may create a job")
    assert alice.replace(changed(job, suspend=True)).allowed


def test_the_spec_of_anothers_job_is_guarded_as_creation_is(alice: Client, client: Client, namespace: str) -> None:
    job = a_job(namespace=namespace, suspend=True)
    assert client.create(job).allowed
    assert alice.replace(changed(job, suspend=False)).code == 403
    labelled = changed(job)
    labelled["metadata"]["labels"] = {"seen": "yes"}
    assert alice.replace(labelled).allowed


def test_scaling_is_guarded_too() -> None:
    """It cannot be tried: what it changes, `spec.elastic.replicas`, is refused in this version."""
    writer = next(p for p in policies() if p["metadata"]["name"] == WRITER)
    rules = writer["spec"]["matchConstraints"]["resourceRules"]
    assert rules[0]["resources"] == [names.PLURAL, f"{names.PLURAL}/scale"]


@pytest.mark.parametrize("policy", ["Foreground", "Background"])
def test_deletion_ends_for_who_may_not_create_pods(alice: Client, client: Client, namespace: str, policy: str) -> None:
    """The garbage collector takes the finalizer away with an update, and it may not create pods either."""
    job = a_job(name=f"deleted-{next(_numbers)}", namespace=namespace)
    owner = client.create(job).body["metadata"]
    reference = {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": owner["name"], "uid": owner["uid"],
                 "controller": True, "blockOwnerDeletion": True}  # fmt: skip
    child = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "child", "ownerReferences": [reference]}}
    maps = f"/api/v1/namespaces/{namespace}/configmaps"
    client.ask("POST", maps, child)
    alice.ask("DELETE", job_path(job), {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy})
    eventually(lambda: client.get(job).code == 404, "the job is gone")
    eventually(lambda: client.call("GET", f"{maps}/child").code == 404, "and so is what it owned")
