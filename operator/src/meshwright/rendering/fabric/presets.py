"""Where most profiles begin. A profile that names a preset says only what is different; null takes a field away."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from meshwright.rendering.fabric.profile import CLIQUE_LABEL

_ETH0: Final = {"NCCL_SOCKET_IFNAME": "eth0", "GLOO_SOCKET_IFNAME": "eth0"}
"""The pod network's interface, for what does not go over the fabric: meeting, and Gloo, which takes one exact name."""
_RDMA: Final = {"NCCL_IB_DISABLE": "0", "NCCL_IB_HCA": "mlx5", **_ETH0}

PRESETS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        # Any cluster: everything over the pod network. Without these NCCL may wait for adapters that no pod can open.
        "TCP": {
            "sharedMemory": "16Gi",
            "env": {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "^lo,docker0", "GLOO_SOCKET_IFNAME": "eth0"},
        },
        # Virtual functions that Multus attaches, one network for each. Which ones, only the administrator knows.
        "SRIOVInfiniBand": {
            "nics": {"resource": "nvidia.com/mlnxnics", "count": 8},
            "capabilities": ["IPC_LOCK"],
            "sharedMemory": "64Gi",
            "env": _RDMA,
        },
        # One slot of the shared device plugin gives all adapters of the node; to ask for eight would never be met.
        "SharedRDMA": {
            "resources": {"rdma/rdma_shared_device_a": 1},
            "capabilities": ["IPC_LOCK"],
            "sharedMemory": "64Gi",
            "env": _RDMA,
        },
        # NVLink between nodes. Memory of peers can be mapped only through a channel of a ComputeDomain.
        "MNNVL": {
            "nodes": {"matchExpressions": [{"key": CLIQUE_LABEL, "operator": "Exists"}]},
            "computeDomain": True,
            "sharedMemory": "64Gi",
            "env": {"NCCL_MNNVL_ENABLE": "1", "NCCL_CUMEM_ENABLE": "1", "NCCL_NVLS_ENABLE": "1", **_ETH0},
        },
    }
)
