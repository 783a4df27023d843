"""Topologies by the labels that known label writers put on nodes.

Bandwidths are what a node of eight GPUs with one 400 Gb/s adapter each typically has beyond a domain, with 2:1
oversubscription per tier; an administrator who knows better sets them. Leaving a domain of NVLink means going through
the adapters; leaving a node within it means NVLink.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from meshwright.placement.topology.tree import HOSTNAME, NODE, Level, Topology

ADAPTERS: Final = 400.0
"""GB/s between a node and its leaf."""
NVLINK: Final = 7200.0
"""GB/s between a node and the others of its NVLink domain."""


def _tiers(*named: tuple[str, str], nvlink: str = "") -> Topology:
    """Switch tiers from the outermost, each with half the bandwidth of the next one, then an NVLink domain."""
    switches = [Level(name, key, ADAPTERS / 2 ** (len(named) - 1 - i)) for i, (name, key) in enumerate(named)]
    if not nvlink:
        return Topology((*switches, Level(NODE, HOSTNAME, ADAPTERS)))
    return Topology((*switches, Level("nvlink", nvlink, ADAPTERS), Level(NODE, HOSTNAME, NVLINK)))


_NVIDIA: Final = "network.topology.nvidia.com/"

PRESETS: Final[Mapping[str, Topology]] = MappingProxyType(
    {
        "kubernetes": _tiers(("region", "topology.kubernetes.io/region"), ("zone", "topology.kubernetes.io/zone")),
        "topograph": _tiers(
            ("core", "fabric.topograph.run/tier-2"),
            ("spine", "fabric.topograph.run/tier-1"),
            ("leaf", "fabric.topograph.run/tier-0"),
            nvlink="accelerator.topograph.run/domain",
        ),
        "topograph-0.3": _tiers(
            ("core", f"{_NVIDIA}core"),
            ("spine", f"{_NVIDIA}spine"),
            ("leaf", f"{_NVIDIA}leaf"),
            nvlink=f"{_NVIDIA}accelerator",
        ),
        "topograph-0.1": _tiers(
            ("datacenter", f"{_NVIDIA}datacenter"),
            ("spine", f"{_NVIDIA}spine"),
            ("block", f"{_NVIDIA}block"),
            nvlink=f"{_NVIDIA}accelerator",
        ),
        "gke": _tiers(
            ("block", "cloud.google.com/gce-topology-block"),
            ("subblock", "cloud.google.com/gce-topology-subblock"),
            ("host", "cloud.google.com/gce-topology-host"),
        ),
        "aws": _tiers(
            ("layer-1", "topology.k8s.aws/network-node-layer-1"),
            ("layer-2", "topology.k8s.aws/network-node-layer-2"),
            ("layer-3", "topology.k8s.aws/network-node-layer-3"),
        ),
        "aws-ultraserver": _tiers(
            ("layer-1", "topology.k8s.aws/network-node-layer-1"),
            ("layer-2", "topology.k8s.aws/network-node-layer-2"),
            ("layer-3", "topology.k8s.aws/network-node-layer-3"),
            nvlink="topology.k8s.aws/ultraserver-id",
        ),
        "oci": _tiers(
            ("island", "oci.oraclecloud.com/rdma.hpc_island_id"),
            ("network-block", "oci.oraclecloud.com/rdma.network_block_id"),
            ("local-block", "oci.oraclecloud.com/rdma.local_block_id"),
        ),
        "oci-nvlink": _tiers(
            ("island", "oci.oraclecloud.com/rdma.hpc_island_id"),
            ("network-block", "oci.oraclecloud.com/rdma.network_block_id"),
            ("local-block", "oci.oraclecloud.com/rdma.local_block_id"),
            nvlink="oci.oraclecloud.com/host.gpu_memory_fabric_id",
        ),
        "coreweave": _tiers(
            ("fabric", "backend.coreweave.cloud/fabric"),
            ("superpod", "backend.coreweave.cloud/superpod"),
            ("leafgroup", "backend.coreweave.cloud/leafgroup"),
        ),
        "nvlink": _tiers(nvlink="nvidia.com/gpu.clique"),
    }
)
"""By name; `nvlink` serves any cluster whose nodes NVIDIA's feature discovery has labelled."""
