"""What an administrator sees: a real Prometheus reads operator and pods, and a policy closes a job's pods."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from meshwright_api import names
from tests.system.kubelets.site import Site, a_shared_folder, a_trained_job
from tests.system.stage import Json, Stage, eventually
from tests.system.training import PATIENCE, a_section

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.kubelets]

README = Path(__file__).parents[3] / "README.md"
LISTEN = "127.0.0.1:9090"
CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: pods
    file_sd_configs: [{{files: [{targets}]}}]
"""


@contextmanager
def prometheus(site: Site, folder: Path, pods: Sequence[Json]) -> Iterator[None]:
    """A Prometheus in the cluster's network that reads the ports called `metrics`.

    Debian's is built without the discovery of pods, so it is told what that would find.
    """
    targets, configuration = folder / "targets.json", folder / "prometheus.yml"
    found = [{"targets": [address], "labels": {"pod": pod}} for pod, address in map(metrics_address, pods)]
    targets.write_text(json.dumps(found))
    configuration.write_text(CONFIGURATION.format(targets=targets))
    argv = [*site.cluster.container_nodes.network_prefix(), "prometheus", f"--config.file={configuration}"]
    argv += [f"--storage.tsdb.path={folder}/tsdb", f"--web.listen-address={LISTEN}"]
    with (folder / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        try:
            eventually(lambda: "ready to receive" in (folder / "log").read_text(), "Prometheus is ready")
            yield
        finally:
            process.terminate()


def metrics_address(pod: Json) -> tuple[str, str]:
    """The pod's name, and where its port called `metrics` is."""
    ports = [port for container in pod["spec"]["containers"] for port in container.get("ports", ())]
    number = next(port["containerPort"] for port in ports if port.get("name") == "metrics")
    return pod["metadata"]["name"], f"{pod['status']['podIP']}:{number}"


def series(site: Site, query: str) -> list[dict[str, str]]:
    """The labels of every series that the query finds."""
    run = site.cluster.container_nodes.run_in_cluster_network
    found = run("promtool", "query", "instant", "--format=json", f"http://{LISTEN}", query)
    return [one["metric"] for one in json.loads(found)]


@pytest.fixture(scope="module")
def watched(site: Site, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A namespace in which the job `watched` trains."""
    site.set_slots({node.name: 1 for node in site.cluster.container_nodes})
    stage = site.stage("watched")
    volume = site.claim(stage, "shared", a_shared_folder(tmp_path_factory.mktemp("watched")))
    stage.create(a_trained_job("watched", a_section(steps=100_000), volume))
    stage.wait_progress("watched", 3)
    yield stage
    stage.delete("watched")


def test_prometheus_finds_the_series_that_the_readme_names(site: Site, watched: Stage, tmp_path: Path) -> None:
    named = set(re.findall(r"`((?:trainingjob|meshwright)_[a-z_]+)`", README.read_text()))
    assert len(named) >= 8
    gang = watched.gang(1)
    with prometheus(site, tmp_path, [*gang, site.operator_pod()]):
        for name in sorted(named):
            eventually(partial(series, site, name), f"{name} has a series", PATIENCE)
        steps = series(site, "meshwright_trainer_step > 2")
        assert {one["pod"] for one in steps} == {pod["metadata"]["name"] for pod in gang}
        assert series(site, f'trainingjob_jobs{{namespace="{watched.namespace}",phase="Running"}} == 1')
        assert {one["pod"] for one in series(site, "meshwright_leader == 1")} == {
            site.operator_pod()["metadata"]["name"]
        }


def test_a_policy_closes_a_jobs_pods_where_the_network_plugin_enforces_it(site: Site, watched: Stage) -> None:
    policies = f"/apis/networking.k8s.io/v1/namespaces/{watched.namespace}/networkpolicies"
    [policy] = watched.cluster.request("GET", policies)["items"]
    uid = watched.job("watched")["metadata"]["uid"]
    assert policy["spec"]["podSelector"] == {"matchLabels": {names.LABEL_JOB_UID: uid}}
    pod = watched.gang(1)[0]
    target = f"http://{pod['status']['podIP']}:9464/metrics"
    script = f"import urllib.request; urllib.request.urlopen({target!r}, timeout=5)"
    stranger = ["exec", site.operator_pod()["metadata"]["name"], "--", "python", "-c", script]
    done = watched.cluster.kubectl("--namespace", "meshwright-system", *stranger, check=False)
    if done.returncode == 0:
        pytest.skip("the network plugin of these nodes (a plain bridge) enforces no NetworkPolicy; the object is right")
    assert "timed out" in done.stderr or "refused" in done.stderr
