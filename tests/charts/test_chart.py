"""The chart: what it renders, what it refuses, and that its rights are exactly those that the operator asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from meshwright.cluster.permissions import PERMISSIONS, Permission, Scope
from meshwright.rendering.fabric.presets import PRESETS
from meshwright.rendering.fabric.profile import Profile
from meshwright.rendering.fabric.reading import profiles_of
from meshwright.settings import parse
from meshwright_api import names
from meshwright_api.crd.definition import custom_resource_definition
from meshwright_api.crd.policies import policies
from meshwright_api.keys import alias_of
from tests.charts.rendering import CHART, GOLDEN, NAMESPACE, VARIANTS, Json, golden_text, helm, of_kind, render

NAME = "meshwright-operator"


def granted(rules: list[Json]) -> set[tuple[str, str, str, str]]:
    """(verb, group, resource, object's name) of every right in some rules."""
    return {
        (verb, group, resource, name)
        for rule in rules
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for name in rule.get("resourceNames", [""])
    }


def wanted(*scopes: Scope) -> set[tuple[str, str, str, str]]:
    """What the operator says it needs in these scopes."""

    def resource(right: Permission) -> str:
        return f"{right.resource}/{right.subresource}" if right.subresource else right.resource

    return {
        (right.verb, right.group, resource(right), right.name.replace("*", NAME))
        for right in PERMISSIONS
        if right.scope in scopes
    }


def rules_of(documents: list[Json], kind: str, name: str, namespace: str | None = None) -> list[Json]:
    found = [
        d for d in of_kind(documents, kind)
        if d["metadata"]["name"] == name and d["metadata"].get("namespace") == namespace
    ]  # fmt: skip
    assert len(found) == 1
    rules: list[Json] = found[0]["rules"]
    return rules


def container(documents: list[Json]) -> Json:
    pod = of_kind(documents, "Deployment")[0]["spec"]["template"]["spec"]
    found: Json = pod["containers"][0]
    return found


def test_helm_has_nothing_to_say() -> None:
    done = helm("lint", "--strict", str(CHART))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize("variant", VARIANTS)
def test_it_renders_as_it_did(variant: str) -> None:
    """If the difference is meant: python -m tests.charts.rendering"""
    assert golden_text(variant) == (GOLDEN / f"{variant}.yaml").read_text()


def test_the_crd_and_its_policies_arrive_unchanged() -> None:
    documents = render()
    assert of_kind(documents, "CustomResourceDefinition") == [custom_resource_definition()]
    found = [d for d in documents if d["kind"].startswith("ValidatingAdmission")]
    assert sorted(found, key=str) == sorted(policies(), key=str)


def test_the_crd_is_upgraded_with_the_chart_and_outlives_it() -> None:
    """K70: a CRD in helm's own folder for them would never be upgraded."""
    assert not (CHART / "crds").exists()
    crd = of_kind(render(), "CustomResourceDefinition")[0]
    assert crd["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


class TestRights:
    def test_cluster_wide(self) -> None:
        documents = render()
        assert granted(rules_of(documents, "ClusterRole", NAME)) == wanted(Scope.JOBS, Scope.ISOLATION)
        assert granted(rules_of(documents, "ClusterRole", f"{NAME}-capacity-reader")) == wanted(Scope.CLUSTER)
        assert granted(rules_of(documents, "ClusterRole", f"{NAME}-token-reviewer")) == wanted(Scope.AGENTS)
        assert granted(rules_of(documents, "Role", NAME, NAMESPACE)) == wanted(Scope.OWN)

    def test_in_namespaces(self) -> None:
        documents = render({"namespaces": ["team-a", "team-b"]})
        for namespace in ("team-a", "team-b"):
            assert granted(rules_of(documents, "Role", NAME, namespace)) == wanted(Scope.JOBS, Scope.ISOLATION)
        assert NAME not in {d["metadata"]["name"] for d in of_kind(documents, "ClusterRole")}

    def test_without_capacity_reader_and_heartbeats_nothing_is_cluster_wide(self) -> None:
        little = {"capacityReader": False, "heartbeat": {"port": 0}, "rbac": {"userRoles": False}}
        documents = render({"namespaces": ["team-a"], **little})
        assert of_kind(documents, "ClusterRole") == of_kind(documents, "ClusterRoleBinding") == []
        assert of_kind(documents, "Secret") == []

    def test_without_network_policies_there_is_no_right_to_them(self) -> None:
        documents = render({"jobs": {"networkPolicy": {"enabled": False}}})
        assert granted(rules_of(documents, "ClusterRole", NAME)) == wanted(Scope.JOBS)
        assert parse(container(documents)["args"], {"KUBECONFIG": "none"}).isolate_jobs is False

    @pytest.mark.parametrize(
        ("profile", "domains"),
        [
            ({"preset": "MNNVL"}, True),
            ({"computeDomain": True}, True),
            ({"preset": "MNNVL", "computeDomain": False}, False),
            ({"preset": "TCP"}, False),
        ],
        ids=["preset", "said", "taken away", "another"],
    )
    def test_compute_domains_only_where_a_profile_has_some(self, profile: Json, domains: bool) -> None:
        documents = render({"profiles": [{"name": "tcp", "preset": "TCP"}, {"name": "p", **profile}]})
        scopes = (Scope.JOBS, Scope.ISOLATION, *((Scope.DOMAINS,) if domains else ()))
        assert granted(rules_of(documents, "ClusterRole", NAME)) == wanted(*scopes)
        file = yaml.safe_load(of_kind(documents, "ConfigMap")[0]["data"]["profiles.yaml"])
        assert any(p.compute_domain for p in profiles_of(file).all) is domains

    def test_nothing_broad(self) -> None:
        rules = [r for d in render() if d["kind"] in ("ClusterRole", "Role") for r in d["rules"]]
        rights = granted(rules)
        assert not [right for right in rights if "*" in right]
        resources = {resource for _, _, resource, _ in rights}
        assert not resources & {"pods/exec", "pods/log", "roles", "clusterroles", "serviceaccounts"}

    def test_one_secret_by_name(self) -> None:
        """Who may create Secrets, or read any, can become anybody in the namespace."""
        documents = render()
        rights = granted([r for d in documents if d["kind"] in ("ClusterRole", "Role") for r in d["rules"]])
        secrets = {(verb, name) for verb, _, resource, name in rights if resource == "secrets"}
        assert secrets == {("get", f"{NAME}-keys"), ("update", f"{NAME}-keys")}
        assert [secret["metadata"]["name"] for secret in of_kind(documents, "Secret")] == [f"{NAME}-keys"]
        assert "data" not in of_kind(documents, "Secret")[0]

    def test_every_binding_is_of_the_operators_account(self) -> None:
        documents = render({"namespaces": ["team-a"]})
        bindings = of_kind(documents, "RoleBinding") + of_kind(documents, "ClusterRoleBinding")
        subjects = [subject for binding in bindings for subject in binding["subjects"]]
        assert len(subjects) == 4
        assert {(s["kind"], s["name"], s["namespace"]) for s in subjects} == {("ServiceAccount", NAME, NAMESPACE)}

    def test_users_cannot_write_status(self) -> None:
        roles = {d["metadata"]["name"]: granted(d["rules"]) for d in of_kind(render(), "ClusterRole")}
        for name in ("meshwright-editor", "meshwright-viewer", "meshwright-submitter"):
            writes = {(v, r) for v, _, r, _ in roles[name] if v not in ("get", "list", "watch")}
            assert f"{names.PLURAL}/status" not in {resource for _, resource in writes}
        assert ("create", "", "pods", "") in roles["meshwright-submitter"]
        assert ("create", names.GROUP, names.PLURAL, "") in roles["meshwright-editor"]


class TestDeployment:
    @pytest.mark.parametrize("variant", VARIANTS)
    def test_the_operator_understands_its_flags(self, variant: str) -> None:
        settings = parse(container(render(VARIANTS[variant]))["args"], {"KUBECONFIG": "none"})
        assert settings.lease_name == NAME
        assert (settings.metrics_port, settings.liveness_port) == (8080, 8081)

    def test_values_reach_the_operator(self) -> None:
        settings = parse(container(render(VARIANTS["namespaced"]))["args"], {"KUBECONFIG": "none"})
        assert settings.namespaces == ("team-a", "team-b")
        assert settings.capacity_reader is False
        assert (settings.workers, settings.resync_seconds, settings.identity) == (1_000_000, 0.5, "one")
        assert (settings.jobs_pod_security, settings.decision_log_dir) == ("restricted", "/decisions")

    def test_jobs_get_the_images_of_this_release(self) -> None:
        settings = parse(container(render({"image": {"tag": "7"}}))["args"], {"KUBECONFIG": "none"})
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        assert (settings.agent_image, settings.trainer_image) == (
            "meshwright/operator:7",
            f"meshwright/trainer:{version}",
        )
        chosen = {"trainerImage": "a/trainer:1", "agentImage": "a/agent:1"}
        settings = parse(container(render({"jobs": chosen}))["args"], {"KUBECONFIG": "none"})
        assert (settings.trainer_image, settings.agent_image) == ("a/trainer:1", "a/agent:1")

    def test_who_may_read_the_metrics_of_jobs(self) -> None:
        peers = [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}]
        documents = render({"jobs": {"networkPolicy": {"scrapers": peers}}})
        settings = parse(container(documents)["args"], {"KUBECONFIG": "none"})
        assert (settings.isolate_jobs, list(settings.scrapers)) == (True, peers)
        assert list(settings.rendering_for({}).scrapers) == peers

    def test_profiles_reach_the_operator(self, tmp_path: Path) -> None:
        documents = render(VARIANTS["namespaced"])
        (made,) = of_kind(documents, "ConfigMap")
        mounts = {mount["mountPath"]: mount["name"] for mount in container(documents)["volumeMounts"]}
        volumes = of_kind(documents, "Deployment")[0]["spec"]["template"]["spec"]["volumes"]
        volume = next(v for v in volumes if v["name"] == mounts["/etc/meshwright"])
        assert volume["configMap"]["name"] == made["metadata"]["name"]
        file = Path(parse(container(documents)["args"], {"KUBECONFIG": "none"}).profiles_file)
        assert file.parent == Path("/etc/meshwright")
        (tmp_path / "profiles").write_text(made["data"][file.name])
        ib, tcp = parse(["--profiles-file", str(tmp_path / "profiles")], {"KUBECONFIG": "none"}).profiles.all
        assert (ib.name, ib.resources, ib.capabilities) == ("ib", {"rdma/rdma_shared_device_a": 1}, ("IPC_LOCK",))
        assert tcp.env == {"NCCL_SOCKET_IFNAME": "^lo,docker0", "GLOO_SOCKET_IFNAME": "eth0", "NCCL_DEBUG": "INFO"}

    def test_other_profiles_start_the_operator_anew(self) -> None:
        def stamp(profiles: list[Json]) -> object:
            template = of_kind(render({"profiles": profiles}), "Deployment")[0]["spec"]["template"]
            return template["metadata"].get("annotations")

        assert stamp([]) is None
        assert stamp([{"name": "a"}]) != stamp([{"name": "b"}])

    @pytest.mark.parametrize("release", ["meshwright", "other"])
    def test_agents_find_the_operator_where_plans_say(self, release: str) -> None:
        documents = render(release=release)
        env = {"KUBECONFIG": "none", "POD_NAMESPACE": NAMESPACE}
        endpoint = parse(container(documents)["args"], env).heartbeat_endpoint
        [service] = [s for s in of_kind(documents, "Service") if s["metadata"]["name"].endswith("-heartbeat")]
        assert service["spec"]["clusterIP"] == "None"
        host = f"{service['metadata']['name']}.{service['metadata']['namespace']}.svc"
        assert endpoint == f"http://{host}:{service['spec']['ports'][0]['port']}"
        ports = {port["name"]: port["containerPort"] for port in container(documents)["ports"]}
        # Headless: the port of the Service is the port of the pod.
        assert ports[service["spec"]["ports"][0]["targetPort"]] == service["spec"]["ports"][0]["port"]

    def test_the_lease_is_the_one_it_may_update(self) -> None:
        documents = render(release="other")
        lease = of_kind(documents, "Lease")[0]["metadata"]["name"]
        assert lease == "other-operator"
        assert f"--lease-name={lease}" in container(documents)["args"]
        assert rules_of(documents, "Role", lease, NAMESPACE)[0]["resourceNames"] == [lease]

    def test_probes_ask_the_liveness_port(self) -> None:
        found = container(render({"liveness": {"port": 9000}}))
        assert {"name": "liveness", "containerPort": 9000} in found["ports"]
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert found[probe]["httpGet"] == {"path": "/healthz", "port": "liveness"}

    def test_the_service_finds_the_pods(self) -> None:
        documents = render({"podLabels": {"team": "platform"}})
        labels = of_kind(documents, "Deployment")[0]["spec"]["template"]["metadata"]["labels"]
        service = of_kind(documents, "Service")[0]["spec"]
        assert service["selector"].items() <= labels.items()
        assert service["ports"][0]["targetPort"] in {port["name"] for port in container(documents)["ports"]}


def test_priority_classes_never_preempt() -> None:
    classes = of_kind(render(), "PriorityClass")
    assert len(classes) == 3
    assert {c["preemptionPolicy"] for c in classes} == {"Never"}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replica": 2}, "replica"),
        ({"replicas": "two"}, "replicas"),
        ({"image": {"digest": "latest"}}, "digest"),
        ({"jobs": {"podSecurity": "privileged"}}, "podSecurity"),
        ({"jobs": {"networkPolicy": {"scrapers": [{}]}}}, "scrapers"),
        ({"jobs": {"networkPolicy": {"scrapers": [{"pods": {}}]}}}, "pods"),
        ({"profiles": [{"preset": "TCP"}]}, "name"),
        ({"profiles": [{"name": "a", "preset": "RoCE"}]}, "preset"),
        ({"profiles": [{"name": "a", "hostnetwork": True}]}, "hostnetwork"),
        ({"profiles": [{"name": "a", "env": {"NCCL_DEBUG": 1}}]}, "NCCL_DEBUG"),
        ({"logging": {"format": "xml"}}, "format"),
        ({"settings": {"Workers": 1}}, "Workers"),
        ({"priorityClasses": [{"name": "x"}]}, "value"),
    ],
)
def test_a_wrong_value_is_named(values: Json, says: str) -> None:
    done = helm("template", "meshwright", str(CHART), values=values)
    assert done.returncode != 0
    assert says in done.stderr


def test_the_schema_knows_every_field_of_a_profile() -> None:
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]["profiles"]["items"]
    fields = {alias_of(Profile, name) for name in Profile.model_fields}
    assert set(schema["properties"]) == fields | {"preset"}
    assert schema["properties"]["preset"]["enum"] == list(PRESETS)
    values = (CHART / "values.yaml").read_text()
    assert not [name for name in fields if f"#   {name} " not in values]


def test_every_value_is_in_the_schema() -> None:
    values: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())["properties"]
    assert set(values) == set(schema) - {"global"}
