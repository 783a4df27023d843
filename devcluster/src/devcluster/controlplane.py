"""How the programs of a control plane are run: their arguments, their credentials, their order.

Identities. Static tokens for `admin`, the controllers, the scheduler and the node program (so that the
audit log tells them apart); RBAC is on, and service accounts get real tokens. The certificates come from the
program itself (`kube certificates`); see kube/certificates.go for the list of files in `pki/`.

Node endpoint. `kubectl logs` makes the API server call the node's daemon endpoint over HTTPS. Both sides
prove themselves: the node serves `pki/node.crt` (valid for 127.0.0.1) and asks for a client certificate that the
cluster's CA signed (the one in its kubeconfig); only the API server has one (`pki/api-client.crt`). So nobody else
on the machine reads a pod's log there. The node program is told its files by `--tls-cert` and `--tls-key`.

etcd asks for the same client certificate: whoever writes to etcd makes pods, and pods of process nodes are
processes of this user.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devcluster.errors import ApiError

SERVICE_RANGE, SERVICE_IP = "10.96.0.0/16", "10.96.0.1"
ADMIN, CONTROLLERS, SCHEDULER, NODES = (
    "admin",
    "system:kube-controller-manager",
    "system:kube-scheduler",
    "devcluster-nodes",
)
_MASTERS = {ADMIN, NODES}

# Reads and leases would be nine tenths of the log. Pods and our own kind are logged with bodies: who judges a run
# from outside needs the UIDs and labels of what was made and deleted, and what a status was changed to.
_POD_UIDS = {
    "level": "RequestResponse",
    "verbs": ["create", "delete"],
    "resources": [{"group": "", "resources": ["pods"]}],
}
_OWN_KIND = {"level": "Request", "resources": [{"group": "meshwright.dev"}]}
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "omitManagedFields": True,
    "rules": [
        {"level": "None", "verbs": ["get", "list", "watch"]},
        {"level": "None", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        _POD_UIDS,
        _OWN_KIND,
        {"level": "Metadata"},
    ],
}


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
    """

    audit: bool = True
    node_monitor_grace_seconds: float = 8.0
    toleration_seconds: int = 300
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, bool] = field(default_factory=dict)
    extra_arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)
    start_seconds: float = 120.0


@dataclass(frozen=True)
class Ports:
    """The ports of 127.0.0.1 that one cluster uses."""

    api: int
    etcd: int
    etcd_peer: int
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


def write_credentials(layout: Layout, server: str) -> dict[str, str]:
    """Writes a token per static user and a kubeconfig for each; returns the tokens."""
    tokens = {user: secrets.token_hex(16) for user in (ADMIN, CONTROLLERS, SCHEDULER, NODES)}
    lines = [f"{token},{user},{user}" + (",system:masters" * (user in _MASTERS)) for user, token in tokens.items()]
    write_private(layout.directory / "tokens.csv", "\n".join(lines) + "\n")
    for user, token in tokens.items():
        write_kubeconfig(layout.kubeconfig(user), server, layout.pki / "ca.crt", user, token)
    return tokens


def write_kubeconfig(path: Path, server: str, ca: Path, user: str, token: str, namespace: str = "default") -> None:
    """Writes a kubeconfig (JSON is YAML) that only its owner can read; it is whole, so it may be copied."""
    authority = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "devcluster",
        "clusters": [{"name": "devcluster", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": "devcluster", "context": {"cluster": "devcluster", "user": user, "namespace": namespace}}
        ],
    }
    write_private(path, json.dumps(config, indent=1))


def write_private(path: Path, text: str) -> None:
    """Writes a file that nobody else may read, at no moment."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def etcd_arguments(layout: Layout, ports: Ports) -> list[str]:
    """Without fsync: the data need to survive a killed process, not a power cut."""
    client, peer = f"https://127.0.0.1:{ports.etcd}", f"https://127.0.0.1:{ports.etcd_peer}"
    secure = [
        argument
        for kind in ("", "peer-")
        for argument in (
            f"--{kind}cert-file={layout.pki}/server.crt",
            f"--{kind}key-file={layout.pki}/server.key",
            f"--{kind}trusted-ca-file={layout.pki}/ca.crt",
            f"--{kind}client-cert-auth",
        )
    ]
    return [
        "--name=devcluster",
        f"--data-dir={layout.data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=devcluster={peer}",
        *secure,
        "--enable-grpc-gateway=false",  # would call itself with the server's certificate, in vain
        "--socket-reuse-port",
        f"--quota-backend-bytes={8 << 30}",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        "--log-level=warn",
    ]


def apiserver_arguments(layout: Layout, ports: Ports, options: Options) -> list[str]:
    """The API server, with RBAC, all default admission and real service account tokens."""
    pki = layout.pki
    arguments = [
        f"--etcd-servers=https://127.0.0.1:{ports.etcd}",
        f"--etcd-cafile={pki}/ca.crt",
        f"--etcd-certfile={pki}/api-client.crt",
        f"--etcd-keyfile={pki}/api-client.key",
        "--bind-address=127.0.0.1",
        f"--secure-port={ports.api}",
        "--permit-port-sharing",
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",  # loopback addresses are not allowed in Endpoints
        f"--tls-cert-file={pki}/server.crt",
        f"--tls-private-key-file={pki}/server.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--token-auth-file={layout.directory}/tokens.csv",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={pki}/service-account.key",
        f"--service-account-signing-key-file={pki}/service-account.key",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
        "--allow-privileged",
        f"--kubelet-certificate-authority={pki}/ca.crt",
        f"--kubelet-client-certificate={pki}/api-client.crt",
        f"--kubelet-client-key={pki}/api-client.key",
        "--kubelet-preferred-address-types=InternalIP",
        f"--default-not-ready-toleration-seconds={options.toleration_seconds}",
        f"--default-unreachable-toleration-seconds={options.toleration_seconds}",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
        "--profiling=false",
        *_gates(options),
    ]
    if options.runtime_config:
        arguments.append("--runtime-config=" + _pairs(options.runtime_config))
    if options.audit:
        arguments += [
            f"--audit-policy-file={layout.directory}/audit-policy.json",
            f"--audit-log-path={layout.audit_log}",
            "--audit-log-mode=blocking",  # a call is in the log before its answer leaves
            "--audit-log-maxsize=1000000",  # never rotated: readers follow one file
        ]
    return arguments


def controllers_arguments(layout: Layout, ports: Ports, options: Options) -> list[str]:
    """All controllers, fast, and quick to see that a node is lost."""
    return [
        *_client(layout, CONTROLLERS, ports.controllers),
        f"--service-account-private-key-file={layout.pki}/service-account.key",
        f"--root-ca-file={layout.pki}/ca.crt",
        f"--cluster-signing-cert-file={layout.pki}/ca.crt",
        f"--cluster-signing-key-file={layout.pki}/ca.key",
        "--use-service-account-credentials",
        "--node-monitor-period=1s",
        f"--node-monitor-grace-period={options.node_monitor_grace_seconds}s",
        *_gates(options),
    ]


def scheduler_arguments(layout: Layout, ports: Ports, options: Options) -> list[str]:
    """The default scheduler."""
    return [*_client(layout, SCHEDULER, ports.scheduler), *_gates(options)]


def _client(layout: Layout, user: str, port: int) -> list[str]:
    config = layout.kubeconfig(user)
    return [
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        "--authentication-skip-lookup",  # there is no front proxy to look up
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        "--permit-port-sharing",
        f"--tls-cert-file={layout.pki}/server.crt",
        f"--tls-private-key-file={layout.pki}/server.key",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
    ]


def _gates(options: Options) -> list[str]:
    return ["--feature-gates=" + _pairs(options.feature_gates)] if options.feature_gates else []


def _pairs(mapping: Mapping[str, bool]) -> str:
    return ",".join(f"{name}={str(on).lower()}" for name, on in mapping.items())


def request(url: str, ca: Path, token: str, method: str = "GET", body: Any = None) -> bytes:
    """One request to a program of the cluster, past every proxy that the environment names. PATCH is a merge patch.

    Raises:
        ApiError: It was refused.
        OSError: There was no answer.
    """
    context = ssl.create_default_context(cafile=str(ca))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    data = None if body is None else json.dumps(body).encode()
    try:
        with opener.open(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise ApiError(method, url, error.code, error.read().decode(errors="replace")) from None


def listens(port: int) -> bool:
    """Whether a program takes connections at that port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True
