"""Fixtures for tests that need node programs of their own."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from devcluster.cluster import Cluster
from devcluster.node.testing import Client, Gates, NodeProcess, Pods, node_program

MakeNodes = Callable[..., NodeProcess]


@pytest.fixture
def make_nodes(cluster: Cluster, tmp_path: Path) -> Iterator[MakeNodes]:
    """Starts node programs that end with the test: `make_nodes(mode, prefix, *arguments, kubeconfig=..., wait=...)`."""
    programs: list[NodeProcess] = []

    def make(mode: str, prefix: str, *arguments: str, wait: bool = True, **options: Any) -> NodeProcess:
        program = node_program(cluster, tmp_path / prefix, mode, prefix, *arguments, **options)
        programs.append(program)
        program.start(wait=wait)
        return program

    yield make
    for program in programs:
        if program.process.poll() is None:
            program.stop(signal.SIGKILL)
    with_nodes = Client(cluster)
    for program in programs:
        prefix = next(one for one in program.argv if one.startswith("--label=under-test="))[len("--label=") :]
        with_nodes.text("DELETE", "/api/v1/nodes?" + urlencode({"labelSelector": prefix}))
    with_nodes.close()


@pytest.fixture
def gates(tmp_path: Path) -> Gates:
    """Gates that the test opens for its pods."""
    folder = tmp_path / "gates"
    folder.mkdir()
    return Gates(folder)


@pytest.fixture
def client(cluster: Cluster) -> Iterator[Client]:
    made = Client(cluster)
    yield made
    made.close()


@pytest.fixture
def make_pods(client: Client, namespace: str) -> Callable[[str], Pods]:
    """`make_pods(prefix)`: pods for the nodes of `make_nodes(mode, prefix)`."""
    return lambda prefix: Pods(client, namespace, {"under-test": prefix})
