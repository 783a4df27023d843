"""What the job stands on: a control plane with two nodes on this machine, the chart, and the operator as a process."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from demo import manifest
from demo.errors import DemoError
from demo.examples import BUILT_IN, OWN_SCRIPT, Example
from devcluster.cluster import Cluster
from devcluster.errors import AlreadyRunningError, ApiError
from devcluster.node import isolation
from devcluster.node.sandbox.launch import NONE
from devcluster.node.settings import IsolationChoice
from devcluster.ports import free_port
from devcluster.supervisor import Client
from meshwright_api import names

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "charts" / "meshwright"
SYSTEM, RELEASE = "meshwright-system", "meshwright"
ACCOUNT = "meshwright-operator"
OPERATOR = "operator"
_STOP_SECONDS = 10.0
_PATIENCE = 60.0


@dataclass(frozen=True)
class Places:
    """Where the demo keeps what it makes, all of it within the checkout."""

    root: Path = ROOT / "build" / "demo"

    @property
    def cluster(self) -> Path:
        """The control plane's folder; it is removed by `devcluster down`."""
        return self.root / "cluster"

    @property
    def checkpoints(self) -> Path:
        """What the pods see as /checkpoints; it stays."""
        return self.root / "checkpoints"

    @property
    def undisturbed(self) -> Path:
        """Checkpoints of the same job that nobody disturbed; they stay."""
        return self.root / "undisturbed"

    @property
    def operator_log(self) -> Path:
        """What the operator says; it stays."""
        return self.root / "operator.log"


def start_cluster(places: Places) -> Cluster:
    """Starts the control plane and two nodes of one CPU each, so that the gang spans both.

    Raises:
        DemoError: an earlier demo was kept and is still up.
    """
    try:
        cluster = Cluster.start(places.cluster)
    except AlreadyRunningError:
        raise DemoError(f"the demo that was kept is still up; take it down: {command(places, 'down')}") from None
    shutil.rmtree(places.checkpoints, ignore_errors=True)
    places.checkpoints.mkdir(parents=True)
    try:
        cluster.start_nodes("process", 2, cpus="1", memory="2Gi")
    except BaseException:
        cluster.stop()
        raise
    return cluster


def install(cluster: Cluster) -> Path:
    """Installs the chart, all but its Deployment; returns the kubeconfig of the operator's service account.

    The operator of the demo has the rights that the chart gives it, and no others.
    """
    cluster.create_namespace(SYSTEM)
    rendered = cluster.helm("template", RELEASE, str(CHART), "--namespace", SYSTEM).stdout
    documents = [document for document in yaml.safe_load_all(rendered) if document]
    apply(cluster, [document for document in documents if document["kind"] != "Deployment"], SYSTEM)
    _wait_served(cluster)
    return cluster.kubeconfig_for_service_account(SYSTEM, ACCOUNT)


def start_operator(cluster: Cluster, places: Places, kubeconfig: Path) -> str:
    """Starts the operator under the cluster's supervisor, so that it ends with it; returns the URL of its metrics."""
    port, heartbeats = free_port(), free_port()
    flags = {
        "kubeconfig": kubeconfig,
        "lease-namespace": SYSTEM,
        "bind-address": "127.0.0.1",
        "metrics-port": port,
        "liveness-port": 0,
        "heartbeat-port": heartbeats,
        "heartbeat-url": f"http://127.0.0.1:{heartbeats}",
        "log-format": "text",
    }
    argv = [sys.executable, "-P", "-m", "meshwright", *(f"--{name}={value}" for name, value in flags.items())]
    log = str(places.operator_log)
    env = dict(os.environ)
    Client(cluster.directory).call("spawn", name=OPERATOR, argv=argv, env=env, log=log, grace=_STOP_SECONDS)
    return f"http://127.0.0.1:{port}/metrics"


def check_alive(cluster: Cluster, places: Places) -> None:
    """Notices a program that has ended, whose work everything else would wait for.

    Raises:
        DemoError: one has.
    """
    for program in cluster.programs():
        if program.returncode is not None:
            log = places.operator_log if program.name == OPERATOR else places.cluster / "logs" / f"{program.name}.log"
            words = log.read_text(errors="replace").splitlines()[-12:] if log.exists() else []
            raise DemoError("\n".join([f"{program.name} ended with {program.returncode}:", *words]))


def has_mounts(places: Places) -> bool:
    """Whether process nodes can mount volumes at their paths here; that takes user namespaces, or root."""
    places.root.mkdir(parents=True, exist_ok=True)
    return isolation.choose(IsolationChoice.AUTO, places.root) != NONE


def shown(wanted: Example, places: Places) -> Example:
    """The example that can be shown on this machine in place of the one that is wanted."""
    return OWN_SCRIPT if wanted is BUILT_IN and wanted.needs_mounts and not has_mounts(places) else wanted


def submit(cluster: Cluster, places: Places, example: Example) -> None:
    """Offers a volume, which on a real cluster a storage class does, and applies the example as a user would."""
    apply(cluster, [volume(places.checkpoints, example.name)])
    if has_mounts(places):
        cluster.kubectl("apply", "-f", str(example.manifest))
    else:
        documents = list(yaml.safe_load_all(example.manifest.read_text()))
        apply(cluster, [manifest.without_mounts(document) for document in documents])


def apply(cluster: Cluster, documents: list[dict[str, Any]], namespace: str = "default") -> None:
    """`kubectl apply`."""
    text = "\n---\n".join(json.dumps(document) for document in documents)
    cluster.kubectl("apply", "--server-side", "--namespace", namespace, "-f", "-", stdin=text)


def volume(folder: Path, name: str) -> dict[str, Any]:
    """A volume of this machine for the claim of this name, and for no other."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": {"namespace": "default", "name": name},
            "hostPath": {"path": str(folder)},
        },
    }


def command(places: Places, text: str) -> str:
    """A command line for people that works on the demo's cluster."""
    return f"{Path(sys.executable).parent}/devcluster --directory {places.cluster} {text}"


def _wait_served(cluster: Cluster) -> None:
    """A CRD is served some time after it is stored."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            cluster.request("GET", f"/apis/{names.API_VERSION}/{names.PLURAL}")
            return
        except ApiError as error:
            if time.monotonic() > deadline:
                raise DemoError(f"the TrainingJob API does not come up: {error}") from None
        time.sleep(0.1)
