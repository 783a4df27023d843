"""Whether this machine can run container nodes, and what it would need."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from devcluster import gobuild
from devcluster.containers import cgroups

WISH = "CONTAINER_NODES"
"""Environment: `no` leaves container nodes out; see `prepare`."""
NEW_NAMESPACES = ("unshare", "--net", "--mount", "--pid", "--fork", "--kill-child=SIGKILL", "--mount-proc")
"""A prefix that runs a command in the namespaces of a node of its own; all in them ends with it."""
PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "iptables": "iptables",
    "ip": "iproute2",
    "buildah": "buildah",
    "debootstrap": "debootstrap",
    "prometheus": "prometheus",
}
"""Debian packages by a file of theirs; the last three are for images and for what is tested on the nodes."""


@dataclass(frozen=True)
class NodePrograms:
    """What is built for container nodes."""

    folder: Path

    @property
    def kubelet(self) -> Path:
        """The kubelet."""
        return self.folder / "kubelet"

    @property
    def kube_proxy(self) -> Path:
        """kube-proxy."""
        return self.folder / "kube-proxy"

    @property
    def coredns(self) -> Path:
        """CoreDNS."""
        return self.folder / "coredns"

    @property
    def pause(self) -> Path:
        """The first process of every pod."""
        return self.folder / "pause"


def missing_packages() -> tuple[str, ...]:
    """Debian packages that are not installed."""
    path = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
    return tuple(package for file, package in PACKAGES.items() if not shutil.which(file, path=path))


def why_not() -> str:
    """Why container nodes cannot run here, in a few words; empty if they can."""
    if os.environ.get(WISH) == "no":
        return f"{WISH}=no"
    if not sys.platform.startswith("linux"):
        return "container nodes need Linux"
    if os.geteuid() != 0:
        return "container nodes need root"
    if missing := missing_packages():
        return f"container nodes need the packages {' '.join(missing)}: `make container-nodes` installs them on Debian"
    if problem := _namespaces() or _cgroups():
        return problem
    if not gobuild.folder(gobuild.CONTAINER_NODE).exists():
        return "the programs of container nodes are not built yet: `make container-nodes` does it, once, some minutes"
    return ""


def _namespaces() -> str:
    argv = [*NEW_NAMESPACES, "ip", "link", "add", "probe", "type", "bridge"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    return f"container nodes need namespaces of their own: {done.stderr.strip()}" if done.returncode else ""


def _cgroups() -> str:
    group = f"{cgroups.PREFIX}{os.getpid()}-probe"
    try:
        cgroups.create(group)
    except OSError as error:
        return f"container nodes need control groups of their own: {error}"
    finally:
        cgroups.remove([group])
    return ""


def find_node_programs() -> NodePrograms:
    """The programs of container nodes, in the cache."""
    return NodePrograms(gobuild.folder(gobuild.CONTAINER_NODE))
