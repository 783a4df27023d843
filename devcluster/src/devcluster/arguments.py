"""The arguments of every program of a control plane: pure functions of the cluster's settings."""

from __future__ import annotations

from collections.abc import Mapping

from devcluster.access import CONTROLLERS, SCHEDULER
from devcluster.containers.network import GATEWAY
from devcluster.settings import Layout, Options, Ports

# Relative to the cluster's directory, in which its programs run, as paths of sockets must be short. The `:0` is there
# because etcd wants a port in every URL.
ETCD_SOCKET, ETCD_PEER_SOCKET = "etcd.sock:0", "etcd-peer.sock:0"
SERVICE_RANGE, SERVICE_IP = "10.96.0.0/16", "10.96.0.1"

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


_LOOPBACK = (
    "--bind-address=127.0.0.1",
    "--advertise-address=127.0.0.1",
    "--endpoint-reconciler-type=none",  # loopback addresses are not allowed in Endpoints
    "--authorization-mode=RBAC",
)
_PRIVATE = (
    "--bind-address=0.0.0.0",  # of a network that nobody else is in
    f"--advertise-address={GATEWAY}",
    "--endpoint-reconciler-type=lease",
    "--authorization-mode=Node,RBAC",
    "--enable-admission-plugins=NodeRestriction",
)


def etcd(layout: Layout) -> list[str]:
    """Without fsync: the data need to survive a killed process, not a power cut."""
    client, peer = f"unix://{ETCD_SOCKET}", f"unix://{ETCD_PEER_SOCKET}"
    return [
        "--name=devcluster",
        f"--data-dir={layout.data}",
        "--unsafe-no-fsync",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=devcluster={peer}",
        f"--quota-backend-bytes={8 << 30}",
        "--auto-compaction-mode=periodic",
        "--auto-compaction-retention=5m",
        "--log-level=warn",
    ]


def apiserver(layout: Layout, ports: Ports, options: Options) -> list[str]:
    """The API server, with RBAC, all default admission and real service account tokens."""
    pki = layout.pki
    arguments = [
        f"--etcd-servers=unix://{ETCD_SOCKET}",
        f"--secure-port={ports.api}",
        "--permit-port-sharing",
        *(_PRIVATE if options.private_network else _LOOPBACK),
        f"--tls-cert-file={pki}/server.crt",
        f"--tls-private-key-file={pki}/server.key",
        f"--client-ca-file={pki}/ca.crt",
        f"--token-auth-file={layout.directory}/tokens.csv",
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


def controllers(layout: Layout, ports: Ports, options: Options) -> list[str]:
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


def scheduler(layout: Layout, ports: Ports, options: Options) -> list[str]:
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
