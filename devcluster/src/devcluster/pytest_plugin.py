"""Fixtures: `cluster`, one control plane per session, and `namespace`, a fresh one per test.

They never skip: without the programs a test that asks for a cluster fails and says how to build them. Only
`container_cluster`, with its real kubelets, skips where the machine cannot run container nodes, and says why.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest

from devcluster.cluster import Cluster
from devcluster.containers import requirements
from devcluster.containers.images import node_images
from devcluster.containers.node import ContainerNodeSettings
from devcluster.errors import DevClusterError, ImageError


def leave_out(problem: str) -> NoReturn:
    """Skips the test that needs container nodes or their images, or fails it where these are required."""
    if os.environ.get(requirements.WISH) == "required":
        pytest.fail(problem, pytrace=False)
    pytest.skip(problem)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on real kubelets come last, so that these do not idle beside the others."""
    items.sort(key=lambda item: item.get_closest_marker("kubelets") is not None)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A running control plane without nodes (`cluster.start_nodes` adds some), shared by the whole session."""
    started, problem = None, ""
    try:
        started = Cluster.start(tmp_path_factory.mktemp("cluster"))
    except DevClusterError as error:
        problem = str(error)
    if started is None:
        pytest.fail(f"no cluster: {problem}", pytrace=False)
    with started:
        yield started


@pytest.fixture(scope="session")
def container_images() -> Path:
    """What container nodes get their images from; skips where the machine cannot run any."""
    problem = requirements.why_not()
    if not problem:
        try:
            return node_images()
        except ImageError as error:  # a disk that is too small, an index out of reach
            problem = str(error)
    leave_out(problem)


@pytest.fixture(scope="session")
def container_cluster(container_images: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of its own with two container nodes of 4 GPUs (in name), shared by the whole session."""
    folder = tmp_path_factory.mktemp("container-cluster")
    with Cluster.start(folder, private_network=True, node_monitor_grace_seconds=16) as started:
        started.container_nodes.start(2, ContainerNodeSettings(images=container_images, gpus=4))
        yield started


@pytest.fixture
def namespace(cluster: Cluster) -> Iterator[str]:
    """A new namespace in which pods can be made at once; its deletion is begun but not waited for."""
    name = f"test-{uuid.uuid4().hex[:8]}"
    cluster.create_namespace(name)
    yield name
    cluster.request("DELETE", f"/api/v1/namespaces/{name}")
