"""What containerd, kubelet, kube-proxy, the pod network and DNS are told: pure functions to files' contents."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from devcluster.containers import network

PAUSE_IMAGE = "localhost/pause:1"
_CNI_PLUGINS = "/usr/lib/cni"
_GONE_FOR_EVER = "100000h"


def containerd(folder: Path) -> str:
    """containerd 1.6 for one node whose files lie in `folder`."""
    return f"""\
version = 2
root = "{folder}/containerd"
state = "{folder}/containerd-state"
oom_score = 0
[grpc]
  address = "{folder}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  disable_apparmor = true
  disable_hugetlb_controller = true
  tolerate_missing_hugetlb_controller = true
  restrict_oom_score_adj = true  # in a sandbox of one's own even root may not lower it
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{_CNI_PLUGINS}"
    conf_dir = "{folder}/cni"
"""


def pod_network(folder: Path, index: int) -> str:
    """The pod network: a bridge, and an address out of the node's own range."""
    bridge = {
        "type": "bridge",
        "bridge": network.POD_BRIDGE,
        "isGateway": True,
        "isDefaultGateway": True,
        "hairpinMode": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "dataDir": f"{folder}/addresses",
            "ranges": [[{"subnet": network.pod_subnet(index), "rangeStart": f"10.244.{index}.10"}]],
        },
    }
    ports = {"type": "portmap", "capabilities": {"portMappings": True}}
    return json.dumps({"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge, ports]})


def kubelet(folder: Path, pki: Path, cgroup: str) -> str:
    """KubeletConfiguration; nothing is evicted and no image removed for what else fills this machine's disk."""
    configuration: dict[str, Any] = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{pki}/node.crt",
        "tlsPrivateKeyFile": f"{pki}/node.key",
        "containerRuntimeEndpoint": f"unix://{folder}/containerd.sock",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": ["pods"],
        "failCgroupV1": False,
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "clusterDNS": [network.GATEWAY],
        "clusterDomain": "cluster.local",
        "resolvConf": f"{folder}/resolv.conf",
        "podLogsDir": f"{folder}/pod-logs",
        "volumePluginDir": f"{folder}/plugins",
        "readOnlyPort": 0,
        "evictionHard": dict.fromkeys(
            ("memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available"), "0%"
        ),
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": _GONE_FOR_EVER,
        "nodeStatusUpdateFrequency": "2s",
        "nodeLeaseDurationSeconds": 12,
    }
    return json.dumps(configuration, indent=1)


def kubelet_arguments(name: str, index: int, folder: Path, kubeconfig: Path, labels: Mapping[str, str]) -> list[str]:
    """The kubelet's command line, without its program."""
    arguments = [
        f"--config={folder}/kubelet.json",
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={name}",
        f"--node-ip={network.node_address(index)}",
        f"--root-dir={folder}/kubelet",
        f"--cert-dir={folder}/certificates",
    ]
    if labels:
        arguments.append("--node-labels=" + ",".join(f"{key}={value}" for key, value in labels.items()))
    return arguments


def kube_proxy(name: str, kubeconfig: Path) -> str:
    """KubeProxyConfiguration. Everything is masqueraded, as pods of one bridge would else answer past the rules."""
    configuration = {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": network.POD_RANGE,
        "hostnameOverride": name,
        "iptables": {"masqueradeAll": True, "minSyncPeriod": "0s"},
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
    }
    return json.dumps(configuration, indent=1)


def dns(kubeconfig: Path) -> str:
    """CoreDNS's Corefile: the cluster's own names, with the settings that kubeadm gives them, and no others."""
    return f"""\
.:53 {{
  bind {network.GATEWAY}
  errors
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {kubeconfig}
    pods insecure
    ttl 30
  }}
}}
"""
