"""The CustomResourceDefinition itself: fresh, small, described, and what kubectl makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.cluster import Cluster
from meshwright_api import names
from meshwright_api.__main__ import main
from meshwright_api.crd.definition import MAX_BYTES, custom_resource_definition
from meshwright_api.crd.generate import outputs
from meshwright_api.crd.policies import policies
from meshwright_api.keys import known_keys
from meshwright_api.status import Phase
from tests.api.client import Client, job_path
from tests.api.jobs import Json, a_job, changed

REPOSITORY = Path(__file__).parents[2]


def schema() -> Json:
    found: Json = custom_resource_definition()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def fields(node: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Every field of a schema with its path."""
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child
        yield from fields(child, f"{path}.{name}")
    if isinstance(node.get("items"), dict):
        yield from fields(node["items"], f"{path}[]")


def test_what_is_generated_is_fresh() -> None:
    assert main(["generate", "--check"]) == 0


def test_a_stale_file_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "--root", str(tmp_path)]) == 0
    assert main(["generate", "--check", "--root", str(tmp_path)]) == 0
    stale = tmp_path / outputs()[0][0]
    stale.write_text(stale.read_text() + "# edited\n")
    assert main(["generate", "--check", "--root", str(tmp_path)]) == 1
    assert f"{outputs()[0][0]} is stale" in capsys.readouterr().err


def test_it_can_be_applied_client_side() -> None:
    """K58: `kubectl apply` keeps a copy of the object in an annotation, which has a limit."""
    assert len(json.dumps(custom_resource_definition())) < MAX_BYTES
    assert all(len((REPOSITORY / path).read_bytes()) < MAX_BYTES for path, _ in outputs())


def test_every_field_is_described() -> None:
    ours = [(path, node) for path, node in fields(schema()) if not path.startswith(".metadata")]
    bare = [path for path, node in ours if len(node.get("description", "")) < 5]
    assert bare == []
    assert len(ours) > 250


def test_descriptions_of_times_and_sizes_have_units() -> None:
    numbers = [(path, node) for path, node in fields(schema()) if node.get("type") in ("integer", "number")]
    timed = [(path, node["description"]) for path, node in numbers if re.search(r"(Seconds|seconds)", path)]
    assert len(timed) > 10
    for path, text in timed:
        if ".goodput.seconds." not in path:
            assert "second" in text.lower(), path


def test_enums_are_camel_case() -> None:
    """But mesh axes, which are named as the fields of `parallelism` are."""
    words = [(path, node) for path, node in fields(schema()) if not path.endswith((".status", ".axis"))]
    values = [str(v) for _, node in words for v in node.get("enum", ())]
    assert len(values) > 40
    assert [v for v in values if not re.fullmatch(r"[A-Z][A-Za-z0-9]*", v)] == []


def test_no_list_lies_on_the_scale_path() -> None:
    scale = custom_resource_definition()["spec"]["versions"][0]["subresources"]["scale"]
    node = schema()
    for step in scale["specReplicasPath"].strip(".").split("."):
        node = node["properties"][step]
    assert node["type"] == "integer"


def test_every_object_of_the_spec_keeps_unknown_keys_for_the_policy() -> None:
    """Pruning would swallow a typo before any policy sees it."""
    objects = [(path, n) for path, n in fields(schema()) if path.startswith(".spec") and n.get("type") == "object"]
    pruned = [p for p, n in objects if "properties" in n and not n.get("x-kubernetes-preserve-unknown-fields")]
    assert pruned == []
    assert len(objects) > 20
    assert len(known_keys()) > 25


@pytest.mark.cluster
class TestOnTheServer:
    def test_no_policy_has_a_type_warning(self, installed: Cluster) -> None:
        """The API server compiles each policy against the CRD and reports what cannot work."""
        found = json.loads(installed.kubectl("get", "validatingadmissionpolicies", "-o", "json").stdout)["items"]
        ours = {p["metadata"]["name"]: p.get("status", {}) for p in found if names.GROUP in p["metadata"]["name"]}
        assert set(ours) == {p["metadata"]["name"] for p in policies() if p["kind"] == "ValidatingAdmissionPolicy"}
        assert [s for s in ours.values() if s.get("typeChecking", {}).get("expressionWarnings")] == []

    @pytest.mark.parametrize("path", ["", ".spec.failurePolicy", ".spec.roles.template", ".spec.trainer", ".status"])
    def test_kubectl_explains_every_field(self, installed: Cluster, path: str) -> None:
        said = installed.kubectl("explain", f"{names.PLURAL}.{names.GROUP}{path}").stdout
        assert "<empty>" not in said
        assert "DESCRIPTION" in said

    def test_kubectl_explain_states_units_and_defaults(self, installed: Cluster) -> None:
        said = installed.kubectl("explain", f"{names.PLURAL}.{names.GROUP}.spec.failurePolicy.windowSeconds").stdout
        assert "in seconds" in said
        assert "Default 86400" in said

    def test_the_columns_tell_the_truth(self, installed: Cluster, client: Client, namespace: str) -> None:
        job = a_job(name="columns", namespace=namespace)
        assert client.create(job).allowed
        client.set_status(job, phase="Restarting", reason="NodeLost", mesh="data=2", ready="1/2", restarts=3,
                          progress={"step": 120, "loss": "2.31"}, goodput={"percent": 87})  # fmt: skip
        short = installed.kubectl("get", "tj", "-n", namespace).stdout.splitlines()
        assert short[0].split() == ["NAME", "PHASE", "MESH", "PODS", "STEP", "GOODPUT", "RESTARTS", "AGE"]
        assert short[1].split()[:7] == ["columns", "Restarting", "data=2", "1/2", "120", "87", "3"]
        wide = installed.kubectl("get", "tj", "-n", namespace, "-o", "wide").stdout.splitlines()
        assert {"LOSS", "REASON"} <= set(wide[0].split())
        assert {"2.31", "NodeLost"} <= set(wide[1].split())

    @pytest.mark.parametrize("category", ["all", "training"])
    def test_it_is_listed_by_category(self, installed: Cluster, client: Client, namespace: str, category: str) -> None:
        assert client.create(a_job(name="listed", namespace=namespace)).allowed
        assert "listed" in installed.kubectl("get", category, "-n", namespace).stdout

    def test_scaling_says_that_it_is_not_there_yet(self, installed: Cluster, client: Client, namespace: str) -> None:
        """It must never say `scaled` and change nothing."""
        assert client.create(a_job(name="scaled", namespace=namespace)).allowed
        done = installed.kubectl("scale", "tj/scaled", "-n", namespace, "--replicas=3", check=False)
        assert done.returncode != 0
        assert "spec.elastic: Forbidden: elasticity is not part of this version" in done.stderr

    def test_null_is_not_given(self, client: Client, namespace: str) -> None:
        job = a_job(namespace=namespace, ttlSecondsAfterFinished=None, elastic=None, suspend=None)
        stored = client.ask("POST", f"{job_path(job).rsplit('/', 1)[0]}", job)
        assert set(stored["spec"]) == {"roles"}

    def test_every_phase_can_be_written_and_no_other(self, client: Client, namespace: str) -> None:
        job = a_job(namespace=namespace)
        assert client.create(job).allowed
        for phase in Phase:
            assert client.set_status(job, phase=phase)["status"]["phase"] == phase
        refused = client.call("PATCH", f"{job_path(job)}/status", {"status": {"phase": "Created"}},
                              "application/merge-patch+json")  # fmt: skip
        assert refused.code == 422

    def test_client_side_apply_twice(self, installed: Cluster, namespace: str) -> None:
        """K58 once more, as a user does it; the second apply changes nothing."""
        manifest: dict[str, Any] = a_job(name="applied", namespace=namespace)
        for job, word in (
            (manifest, "created"),
            (manifest, "unchanged"),
            (changed(manifest, suspend=True), "configured"),
        ):
            assert word in installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(job)).stdout
