"""The values that describe one cluster: what was asked for, which ports it has, where its files lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ADMIN = "admin"


@dataclass(frozen=True)
class Options:
    """What may differ between clusters.

    Attributes:
        audit: Whether the API server keeps `audit.log`.
        node_monitor_grace_seconds: A node whose Lease is older than this is NotReady and tainted.
        toleration_seconds: How long pods that say nothing stay on a lost node (upstream's default).
        feature_gates: For API server, controllers and scheduler alike.
        runtime_config: API versions to turn on, as in `--runtime-config`.
        extra_arguments: More arguments by program, given last so that they win.
        start_seconds: How long to wait for the whole to be usable.
        private_network: Whether the cluster has a network of its own, as container nodes need (root only). Its API
            server is reached from this machine at the same address as without.
    """

    audit: bool = True
    node_monitor_grace_seconds: float = 8.0
    toleration_seconds: int = 300
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    extra_arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    start_seconds: float = 120.0
    private_network: bool = False


@dataclass(frozen=True)
class Ports:
    """The ports of 127.0.0.1 that one cluster uses."""

    api: int
    controllers: int
    scheduler: int


@dataclass(frozen=True)
class Layout:
    """Where everything of one cluster lies."""

    directory: Path

    @property
    def pki(self) -> Path:
        """Certificates and keys."""
        return self.directory / "pki"

    @property
    def ca(self) -> Path:
        """The certificate that signed all others."""
        return self.pki / "ca.crt"

    @property
    def logs(self) -> Path:
        """One log per program."""
        return self.directory / "logs"

    @property
    def data(self) -> Path:
        """etcd's data."""
        return self.directory / "etcd"

    @property
    def audit_log(self) -> Path:
        """The API server's audit log, one JSON document per line."""
        return self.directory / "audit.log"

    @property
    def marker(self) -> Path:
        """Says that the directory is ours, to people and to `devcluster down`."""
        return self.directory / "README"

    @property
    def description(self) -> Path:
        """What `Cluster.attach` reads; written when all works."""
        return self.directory / "cluster.json"

    def kubeconfig(self, user: str) -> Path:
        """The kubeconfig of one of the static users."""
        return self.directory / ("kubeconfig" if user == ADMIN else f"kubeconfig-{user.rpartition(':')[2]}")

    def log(self, program: str) -> Path:
        """The log of one program."""
        return self.logs / f"{program}.log"
