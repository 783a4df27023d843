"""The kubelets that are held to the contract.

Every test in this folder says what a kubelet does, and runs against each kind of node that claims to do it. To hold
another kind to it, add a `Kubelet` here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.node.testing import Client, Pods, node_program

_LOST = "fake.devcluster/lost"
KINDS = ["process", "process-in-user-namespaces"] if os.geteuid() == 0 else ["process"]


@dataclass(frozen=True)
class Kubelet:
    """A kind of node under test.

    Attributes:
        selector: Labels of its nodes.
        image: An image with a shell and `python3`.
        nodes: Their names; at least two.
        cut_off: Makes a node unreachable, as by a broken network.
        connect: Ends that.
    """

    selector: Mapping[str, str]
    image: str
    nodes: tuple[str, ...]
    cut_off: Callable[[str], object]
    connect: Callable[[str], object]


@pytest.fixture(scope="session", params=KINDS)
def kubelet(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubelet]:
    """Two nodes of the kind under test, with 4 GPUs each."""
    prefix = request.param
    isolation = "user-namespaces" if "user" in request.param else "auto"
    folder: Path = tmp_path_factory.mktemp(prefix)
    program = node_program(
        cluster, folder, "process", prefix, "--count=2", "--gpus=4", "--cpus=4", f"--isolation={isolation}"
    )
    program.start()
    client = Client(cluster)

    def annotate(value: str | None) -> Callable[[str], object]:
        body = {"metadata": {"annotations": {_LOST: value}}}
        return lambda node: client.merge(f"/api/v1/nodes/{node}", body)

    names = (f"{prefix}-0", f"{prefix}-1")
    yield Kubelet({"under-test": prefix}, "example.org/any:1", names, annotate("true"), annotate(None))
    client.close()
    program.stop()


@pytest.fixture
def pods(client: Client, namespace: str, kubelet: Kubelet) -> Pods:
    """Pods in a namespace of the test's own, on the nodes under test."""
    return Pods(client, namespace, kubelet.selector, kubelet.image)
