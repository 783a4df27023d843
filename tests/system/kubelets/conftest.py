"""Meshwright on real kubelets, as an administrator installs it: the chart by helm, our own images."""

from __future__ import annotations

from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from tests.system.kubelets.site import Site, a_shared_folder
from tests.system.stage import Stage


@pytest.fixture(scope="session")
def site(container_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """The cluster with a release of the chart, whose operator runs as a pod."""
    site = Site(container_cluster, tmp_path_factory.mktemp("volumes"))
    site.install()
    return site


@pytest.fixture
def stage(site: Site, request: pytest.FixtureRequest) -> Stage:
    """A namespace of the Pod Security level `restricted`."""
    site.set_slots({node.name: 1 for node in site.cluster.container_nodes})
    return site.stage(f"kubelets-{abs(hash(request.node.name)) % 10_000}")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that pods share, with texts in it."""
    return a_shared_folder(tmp_path)
