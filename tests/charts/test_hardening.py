"""What the operator's pod may do on its node: judged by the API server's own Pod Security admission."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from devcluster.cluster import Cluster
from devcluster.errors import ApiError
from tests.charts.rendering import VARIANTS, Json, of_kind, render


def pod_of(variant: str) -> Json:
    template: Json = of_kind(render(VARIANTS[variant]), "Deployment")[0]["spec"]["template"]
    # The account, the class and the secrets are the release's, which is not installed here.
    spec = {key: value for key, value in template["spec"].items() if key != "serviceAccountName"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "operator"}, "spec": spec}


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_root_is_read_only_and_every_writable_folder_is_bounded(variant: str) -> None:
    """Pod Security says nothing about this."""
    spec = pod_of(variant)["spec"]
    for container in spec["containers"]:
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}
    written = [volume for volume in spec["volumes"] if "configMap" not in volume]
    assert all(set(volume) == {"name", "emptyDir"} and "sizeLimit" in volume["emptyDir"] for volume in written)
    assert spec["securityContext"]["runAsUser"] == spec["securityContext"]["runAsGroup"] == 65532


@pytest.mark.cluster
class TestRestricted:
    @pytest.fixture
    def restricted(self, cluster: Cluster) -> Iterator[str]:
        name = f"restricted-{uuid.uuid4().hex[:8]}"
        cluster.create_namespace(name)
        cluster.kubectl("label", "namespace", name, "pod-security.kubernetes.io/enforce=restricted")
        yield name
        cluster.request("DELETE", f"/api/v1/namespaces/{name}")

    @pytest.mark.parametrize("variant", VARIANTS)
    def test_the_strictest_namespace_takes_the_pod(self, cluster: Cluster, restricted: str, variant: str) -> None:
        made = cluster.request("POST", f"/api/v1/namespaces/{restricted}/pods?dryRun=All", pod_of(variant))
        assert made["metadata"]["name"] == "operator"

    def test_it_would_refuse_another(self, cluster: Cluster, restricted: str) -> None:
        pod = pod_of("default")
        del pod["spec"]["containers"][0]["securityContext"]["capabilities"]
        with pytest.raises(ApiError, match="capabilities"):
            cluster.request("POST", f"/api/v1/namespaces/{restricted}/pods?dryRun=All", pod)
