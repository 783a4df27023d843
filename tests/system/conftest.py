"""A cluster with TrainingJobs installed, fake nodes, and an operator that works on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import Cluster
from devcluster.ports import free_port
from tests.installing import SYSTEM, install
from tests.system.operators import Operator
from tests.system.stage import FAKE_NODES, Stage


@pytest.fixture(scope="session")
def installed(cluster: Cluster) -> Path:
    """CRD, policies and roles of the chart; returns the kubeconfig of the operator's service account."""
    return install(cluster)


@pytest.fixture(scope="session")
def fake_nodes(cluster: Cluster) -> Iterator[None]:
    """Six fake nodes of four CPUs."""
    program = cluster.start_nodes(
        mode="fake", count=6, name_prefix="fake", cpus="4", memory="16Gi", gpus=4, labels=FAKE_NODES
    )
    yield
    program.stop()


@pytest.fixture(scope="session")
def operator(installed: Path, fake_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """The operator that the tests share; a test that kills it starts it again."""
    shared = Operator(installed, tmp_path_factory.mktemp("operator"), SYSTEM)
    shared.start()
    yield shared
    if shared.running():
        shared.stop()


@pytest.fixture
def stage(cluster: Cluster, operator: Operator, namespace: str) -> Stage:
    """A fresh namespace on which the operator works."""
    if not operator.running():
        operator.start()
    return Stage(cluster, namespace)


@pytest.fixture(scope="session")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster of its own with one process node: pods are processes of this machine."""
    with Cluster.start(tmp_path_factory.mktemp("ground")) as cluster:
        install(cluster)
        nodes = cluster.start_nodes(mode="process", count=1, name_prefix="real", cpus="8", memory="16Gi")
        yield cluster
        nodes.stop()


@pytest.fixture(scope="session")
def hearing(ground: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Operator]:
    """An operator that agents can reach, and that writes progress at once."""
    port = free_port()
    listening: dict[str, Any] = {
        "heartbeat_port": port,
        "heartbeat_url": f"http://127.0.0.1:{port}",
        "heartbeat_interval_seconds": 0.5,
        "progress_seconds": 1,
    }
    account = ground.kubeconfig_for_service_account(SYSTEM, "meshwright-operator")
    operator = Operator(account, tmp_path_factory.mktemp("hearing"), SYSTEM, **listening)
    operator.start()
    yield operator
    operator.stop()
