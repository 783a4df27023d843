"""`devcluster`: a Kubernetes on this machine that stays until it is taken down."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from devcluster import toolchain
from devcluster.cluster import Cluster
from devcluster.errors import DevClusterError, NotRunningError
from devcluster.settings import Layout


def default_directory() -> Path:
    """Where `devcluster up` keeps its cluster: `~/.local/state/meshwright/devcluster` (XDG_STATE_HOME is honoured)."""
    base = os.environ.get("XDG_STATE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "meshwright" / "devcluster"


def up(given: argparse.Namespace) -> int:
    """Starts a cluster with nodes and leaves it running."""
    began = time.monotonic()
    cluster = Cluster.start(given.directory, node_monitor_grace_seconds=given.node_grace)
    try:
        if given.nodes:
            cluster.start_nodes("process", given.nodes, name_prefix="node", cpus=given.cpus, memory=given.memory)
        if given.fake_nodes:
            cluster.start_nodes("fake", given.fake_nodes, name_prefix="fake", gpus=given.fake_gpus)
        cluster.detach()
    except BaseException:
        cluster.stop()
        raise
    print(f"up in {time.monotonic() - began:.1f} s: {cluster.server}")
    print(f"  export KUBECONFIG={cluster.kubeconfig}")
    print("  devcluster kubectl get nodes     devcluster status     devcluster down")
    return 0


def down(given: argparse.Namespace) -> int:
    """Ends the cluster, its nodes and their pods, and removes what they left."""
    try:
        Cluster.attach(given.directory).stop()
    except NotRunningError as error:
        print(error)
    if Layout(given.directory).marker.exists():  # no other folder is ours to remove
        shutil.rmtree(given.directory)
        print(f"down; removed {given.directory}")
    return 0


def status(given: argparse.Namespace) -> int:
    """Prints what runs."""
    cluster = Cluster.attach(given.directory)
    print(f"server      {cluster.server}\nkubeconfig  {cluster.kubeconfig}\nlogs        {cluster.directory}/logs")
    for program in cluster.programs():
        state = "running" if program.returncode is None else f"ended with {program.returncode}"
        print(f"{program.name:<24} pid {program.pid:<8} {state}")
    nodes = cluster.kubectl("get", "nodes", "--request-timeout=5s", check=False)
    print((nodes.stdout or nodes.stderr).strip())
    return 0


def kubectl(given: argparse.Namespace) -> int:
    """Hands over to kubectl, as the administrator of the cluster."""
    cluster = Cluster.attach(given.directory)
    done = subprocess.run(
        [cluster.kubectl_path, *given.arguments], env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)}, check=False
    )
    return done.returncode


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="devcluster", description=__doc__)
    parser.add_argument("--directory", type=Path, default=default_directory(), help="of the cluster (%(default)s)")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    starting = commands.add_parser("up", help="start a cluster with nodes; it stays")
    starting.add_argument("--nodes", type=int, default=2, help="process nodes: pods are local processes (%(default)s)")
    starting.add_argument("--cpus", default="2", help="of each process node (%(default)s)")
    starting.add_argument("--memory", default="4Gi", help="of each process node (%(default)s)")
    starting.add_argument("--fake-nodes", type=int, default=0, help="nodes that only pretend to run pods (%(default)s)")
    starting.add_argument("--fake-gpus", type=int, default=8, help="GPUs of each fake node (%(default)s)")
    starting.add_argument("--node-grace", type=float, default=8.0, help="seconds until a silent node is NotReady")
    starting.set_defaults(run=up)
    commands.add_parser("down", help="end it and remove its data").set_defaults(run=down)
    commands.add_parser("status", help="print what runs").set_defaults(run=status)
    calling = commands.add_parser("kubectl", help="kubectl against it", add_help=False, prefix_chars="\0")
    calling.add_argument("arguments", nargs=argparse.REMAINDER)
    calling.set_defaults(run=kubectl)
    commands.add_parser("build", help="build the cluster's programs").set_defaults(
        run=lambda _: toolchain.main(["build"])
    )
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """The command `devcluster`."""
    given = _parser().parse_args(argv)
    try:
        return int(given.run(given))
    except DevClusterError as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
