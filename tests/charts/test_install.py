"""The chart's life on a real API server: installed, upgraded over an older CRD, uninstalled."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster.cluster import Cluster
from meshwright_api import names
from meshwright_api.crd.definition import custom_resource_definition
from tests.api.client import Client, eventually
from tests.api.jobs import Json, a_job
from tests.charts.rendering import CHART, NAMESPACE, of_kind, render

pytestmark = [pytest.mark.cluster, pytest.mark.slow]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own: what is uninstalled here would be missing in the other tests."""
    with Cluster.start(tmp_path_factory.mktemp("chart")) as started:
        yield started


@pytest.fixture(scope="module")
def client(fresh: Cluster) -> Iterator[Client]:
    made = Client(fresh.server, fresh.ca, fresh.token())
    yield made
    made.close()


@pytest.fixture(scope="module")
def older_chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart as it was before a field came."""
    chart = tmp_path_factory.mktemp("older") / "meshwright"
    shutil.copytree(CHART, chart)
    crd = copy.deepcopy(custom_resource_definition())
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    del schema["status"]["properties"]["restarts"]
    (chart / "files" / f"{names.PLURAL}.{names.GROUP}.yaml").write_text(yaml.safe_dump(crd))
    return chart


@pytest.fixture(scope="module")
def upgraded(fresh: Cluster, client: Client, older_chart: Path) -> Json:
    """A release that was installed from the older chart, got a job, and was upgraded; the job."""
    fresh.helm("install", "meshwright", str(older_chart), "--namespace", NAMESPACE, "--create-namespace")
    job = a_job(name="survivor")
    eventually(lambda: client.create(job).allowed, "the CRD is served")
    assert "restarts" not in client.set_status(job, phase="Running", restarts=2)["status"]
    fresh.helm("upgrade", "meshwright", str(CHART), "--namespace", NAMESPACE)
    return job


def test_an_upgrade_upgrades_the_crd_and_keeps_the_jobs(client: Client, upgraded: Json) -> None:
    """K70."""
    assert client.get(upgraded).body["status"]["phase"] == "Running"
    eventually(lambda: client.set_status(upgraded, restarts=2)["status"].get("restarts") == 2, "the new field is kept")


def test_an_upgrade_leaves_the_leader(fresh: Cluster, client: Client, upgraded: Json) -> None:
    path = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/meshwright-operator"
    held = {"spec": {"holderIdentity": "pod-1", "leaseDurationSeconds": 15}}
    client.ask("PATCH", path, held, "application/merge-patch+json")
    fresh.helm("upgrade", "meshwright", str(CHART), "--namespace", NAMESPACE, "--set", "replicas=2")
    assert client.ask("GET", path)["spec"]["holderIdentity"] == "pod-1"


def test_notes_say_what_to_do_next(fresh: Cluster, upgraded: Json) -> None:
    less = ("--set", "policies.enabled=false,capacityReader=false,fullnameOverride=another")
    said = fresh.helm("upgrade", "meshwright", str(CHART), "--dry-run=client", "--namespace", NAMESPACE, *less).stdout
    for part in (
        f"kubectl -n {NAMESPACE} rollout status deployment/another",
        "kubectl explain",
        "policies are off",
        "capacityReader",
        "keeps the CustomResourceDefinition",
    ):
        assert part in said


def test_a_pod_of_the_operator_passes_restricted_pod_security(fresh: Cluster, client: Client) -> None:
    fresh.create_namespace("strict")
    label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    client.ask("PATCH", "/api/v1/namespaces/strict", label, "application/merge-patch+json")
    pods = "/api/v1/namespaces/strict/pods?dryRun=All"
    spec = of_kind(render(), "Deployment")[0]["spec"]["template"]["spec"]
    pod = {"metadata": {"name": "operator"}, "spec": {**spec, "serviceAccountName": "default"}}
    root = copy.deepcopy(pod)
    root["spec"]["securityContext"]["runAsNonRoot"] = False
    eventually(lambda: "violates PodSecurity" in client.call("POST", pods, root).message, "the level is enforced")
    answer = client.call("POST", pods, pod)
    assert answer.allowed, answer.message


@pytest.mark.parametrize(
    ("role", "verb", "what", "may"),
    [
        ("edit", "create", "trainingjobs.meshwright.dev", True),
        ("edit", "update", "trainingjobs.meshwright.dev/status", False),
        ("view", "list", "trainingjobs.meshwright.dev", True),
        ("view", "create", "trainingjobs.meshwright.dev", False),
        ("meshwright-submitter", "create", "trainingjobs.meshwright.dev", True),
        ("meshwright-submitter", "create", "pods", True),
        ("meshwright-submitter", "delete", "pods", False),
    ],
)
def test_what_users_may_do(
    fresh: Cluster, client: Client, upgraded: Json, role: str, verb: str, what: str, may: bool
) -> None:
    binding = {
        "metadata": {"generateName": "test-"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": f"user-of-{role}"}],
    }
    client.ask("POST", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", binding)
    resource, _, subresource = what.partition("/")
    plural, _, group = resource.partition(".")
    attributes = {"namespace": "default", "verb": verb, "group": group, "resource": plural, "subresource": subresource}
    review = {"spec": {"user": f"user-of-{role}", "resourceAttributes": attributes}}

    def allowed() -> bool:
        answer = client.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    if may:
        eventually(allowed, f"{role} may {verb} {what}")
    else:
        read = {**attributes, "verb": "get" if role != "meshwright-submitter" else "create", "subresource": ""}
        known = {"spec": {**review["spec"], "resourceAttributes": read}}
        eventually(lambda: _allowed(client, known), "the binding is known")
        assert not allowed()


def _allowed(client: Client, review: Json) -> bool:
    return bool(client.ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)["status"]["allowed"])


def test_uninstalling_leaves_jobs_and_nothing_else(fresh: Cluster, client: Client, upgraded: Json) -> None:
    """K60: no finalizer, no policy and no webhook is left that could block anything."""
    fresh.helm("uninstall", "meshwright", "--namespace", NAMESPACE, "--wait")
    assert client.get(upgraded).allowed
    kinds = "clusterroles,clusterrolebindings,validatingadmissionpolicies,priorityclasses"
    left = json.loads(fresh.kubectl("get", kinds, "-o", "json").stdout)["items"]
    assert [item["metadata"]["name"] for item in left if "meshwright" in item["metadata"]["name"]] == []
    client.ask("DELETE", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{names.PLURAL}.{names.GROUP}")
    eventually(lambda: client.get(upgraded).code == 404, "the CRD and its jobs are gone")
