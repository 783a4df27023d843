"""The kubelets that are held to the contract.

Every test in this folder says what a kubelet does, and runs against each kind of node that claims to do it. To hold
another kind to it, add a `Kubelet` here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devcluster.cluster import Cluster
from devcluster.images.build import Images
from devcluster.node.testing import Client, Pods, node_program

_LOST = "fake.devcluster/lost"
_ROOT_ONLY = ["process-in-user-namespaces"] if os.geteuid() == 0 else []
KINDS = ["process", *_ROOT_ONLY, pytest.param("container", marks=pytest.mark.kubelets)]


@dataclass(frozen=True)
class Kubelet:
    """A kind of node under test.

    Attributes:
        selector: Labels of its nodes.
        image: An image with a shell and `python3`.
        nodes: Their names; at least two.
        cut_off: Makes a node unreachable, as by a broken network.
        connect: Ends that.
        cpus: How many each offers.
        device_plugin: Whether GPUs come from a device plugin, and are not only said to be there.
        working_dir: The image's.
        pod: Further fields of a pod's spec.
    """

    selector: Mapping[str, str]
    image: str
    nodes: tuple[str, ...]
    cut_off: Callable[[str], object]
    connect: Callable[[str], object]
    cpus: int = 4
    device_plugin: bool = True
    working_dir: str = "/"
    pod: Mapping[str, object] = field(default_factory=dict)


@pytest.fixture(scope="session", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of node under test."""
    return str(request.param)


@pytest.fixture(scope="session")
def cluster(kind: str, request: pytest.FixtureRequest) -> Cluster:
    """The cluster that nodes of the kind can join: container nodes need a network of their own."""
    found: Cluster = request.getfixturevalue("container_cluster" if kind == "container" else "cluster")
    return found


@pytest.fixture(scope="session")
def kubelet(kind: str, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubelet]:
    """Two nodes of the kind under test, with 4 GPUs each."""
    if kind == "container":
        yield _container_nodes(cluster)
        return
    isolation = "user-namespaces" if "user" in kind else "auto"
    folder: Path = tmp_path_factory.mktemp(kind)
    program = node_program(
        cluster, folder, "process", kind, "--count=2", "--gpus=4", "--cpus=4", f"--isolation={isolation}"
    )
    program.start()
    client = Client(cluster)

    def annotate(value: str | None) -> Callable[[str], object]:
        body = {"metadata": {"annotations": {_LOST: value}}}
        return lambda node: client.merge(f"/api/v1/nodes/{node}", body)

    names = (f"{kind}-0", f"{kind}-1")
    yield Kubelet({"under-test": kind}, "example.org/any:1", names, annotate("true"), annotate(None))
    client.close()
    program.stop()


def _container_nodes(cluster: Cluster) -> Kubelet:
    nodes = cluster.container_nodes
    names = tuple(node.name for node in nodes)
    return Kubelet(
        {"kubernetes.io/os": "linux"},
        Images().operator_reference,
        names,
        lambda name: nodes[name].cut_off(),
        lambda name: nodes[name].connect(),
        cpus=os.cpu_count() or 1,
        device_plugin=False,
        working_dir="/tmp",
        pod={"securityContext": {"runAsUser": 0}},  # the image's own user may not write to folders of the test
    )


@pytest.fixture
def pods(client: Client, namespace: str, kubelet: Kubelet) -> Pods:
    """Pods in a namespace of the test's own, on the nodes under test."""
    return Pods(client, namespace, kubelet.selector, kubelet.image, kubelet.pod)
