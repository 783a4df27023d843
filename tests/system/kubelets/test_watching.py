"""What an administrator sees: a real Prometheus reads operator and pods, and a policy closes a job's pods."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright_api import names
from tests.system.kubelets.site import Site, a_trained_job
from tests.system.stage import Stage, eventually
from tests.system.training import PATIENCE, a_section

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.kubelets]

README = Path(__file__).parents[3] / "README.md"
LISTEN = "127.0.0.1:9090"
CONFIGURATION = """
global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: pods
    kubernetes_sd_configs: [{{role: pod, kubeconfig_file: {kubeconfig}}}]
    relabel_configs:
      - {{source_labels: [__meta_kubernetes_pod_container_port_name], regex: metrics, action: keep}}
      - {{source_labels: [__meta_kubernetes_pod_name], target_label: pod}}
"""


@pytest.fixture
def prometheus(site: Site, tmp_path: Path) -> Iterator[None]:
    """A Prometheus in the cluster's network that finds what has a port called `metrics`."""
    file = tmp_path / "prometheus.yml"
    file.write_text(CONFIGURATION.format(kubeconfig=site.cluster.kubeconfig))
    argv = [*site.cluster.container_nodes.network_prefix(), "prometheus", f"--config.file={file}"]
    argv += [f"--storage.tsdb.path={tmp_path}/tsdb", f"--web.listen-address={LISTEN}"]
    with (tmp_path / "log").open("wb") as log, subprocess.Popen(argv, stdout=log, stderr=log) as process:
        yield
        process.terminate()


def series(site: Site, query: str) -> list[dict[str, str]]:
    """The labels of every series that the query finds."""
    run = site.cluster.container_nodes.run_in_cluster_network
    found = run("promtool", "query", "instant", "--format=json", f"http://{LISTEN}", query)
    return [one["metric"] for one in json.loads(found)]


def test_prometheus_finds_the_series_that_the_readme_names(
    site: Site, stage: Stage, shared: Path, prometheus: None
) -> None:
    section = a_section(steps=100_000)
    stage.create(a_trained_job("watched", section, site.claim(stage, "shared", shared)))
    stage.wait_progress("watched", 3)
    pods = {pod["metadata"]["name"] for pod in stage.gang(1)}
    named = set(re.findall(r"`((?:trainingjob|meshwright)_[a-z_]+)`", README.read_text()))
    assert len(named) >= 8
    for name in sorted(named):
        eventually(lambda name=name: series(site, name), f"{name} has a series", PATIENCE)
    assert {one["pod"] for one in series(site, "meshwright_trainer_step > 2")} == pods
    assert series(site, f'trainingjob_jobs{{namespace="{stage.namespace}",phase="Running"}} == 1')
    stage.delete("watched")


def test_a_policy_closes_a_jobs_pods_where_the_network_plugin_enforces_it(
    site: Site, stage: Stage, shared: Path
) -> None:
    section = a_section(steps=100_000)
    uid = stage.create(a_trained_job("closed", section, site.claim(stage, "shared", shared)))
    stage.wait_progress("closed", 1)
    [policy] = stage.cluster.request("GET", f"/apis/networking.k8s.io/v1/namespaces/{stage.namespace}/networkpolicies")[
        "items"
    ]
    assert policy["spec"]["podSelector"] == {"matchLabels": {names.LABEL_JOB_UID: uid}}
    pod = stage.gang(1)[0]
    target = f"http://{pod['status']['podIP']}:9464/metrics"
    script = f"import urllib.request; urllib.request.urlopen({target!r}, timeout=5)"
    stranger = ["exec", site.operator_pod()["metadata"]["name"], "--", "python", "-c", script]
    done = stage.cluster.kubectl("--namespace", "meshwright-system", *stranger, check=False)
    stage.delete("closed")
    if done.returncode == 0:
        pytest.skip("the network plugin of these nodes (a plain bridge) enforces no NetworkPolicy; the object is right")
    assert "timed out" in done.stderr or "refused" in done.stderr
