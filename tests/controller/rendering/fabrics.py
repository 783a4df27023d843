"""Profiles as an administrator might write them, one for each preset, and jobs with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.rendering.fabric.profile import Profile
from meshwright.rendering.fabric.reading import profiles_of
from meshwright.rendering.gang import FrozenPlan, Ground, RenderSettings, freeze, pod_manifest, request
from meshwright_api.job import TrainingJob
from tests.controller.rendering.jobs import a_place

WRITTEN: dict[str, dict[str, Any]] = {
    "tcp": {"preset": "TCP", "sharedMemory": "8Gi"},
    "sriov": {
        "preset": "SRIOVInfiniBand",
        "nodes": {"matchLabels": {"feature.node.kubernetes.io/network-sriov.capable": "true"}},
        "nics": {"networks": ["fabric/ib-rail"]},
    },
    "shared": {"preset": "SharedRDMA", "nodes": {"matchLabels": {"feature.node.kubernetes.io/rdma.available": "true"}}},
    "mnnvl": {"preset": "MNNVL"},
}


def a_profile(name: str = "tcp", **more: Any) -> Profile:
    """One of the above, or with a name of its own exactly what is given."""
    return profiles_of([{"name": name, **WRITTEN.get(name, {}), **more}]).all[0]


def frozen_with(
    job: TrainingJob, profile: Profile | None, ground: Ground | None = None, incarnation: int = 1, **settings: Any
) -> FrozenPlan:
    """The job's plan with a profile, each pod on a node of its own unless the ground says otherwise."""
    asked, placed = request(job, profile=profile), a_place(job)
    if ground is None and profile is not None and profile.compute_domain:
        ground = Ground(cliques=dict.fromkeys(placed.nodes.values(), "cluster.0"))
    return freeze(
        job,
        attempt=incarnation,
        incarnation=incarnation,
        request=asked,
        placed=placed,
        settings=RenderSettings(profile=profile, **settings),
        ground=ground,
    )


def pod_with(job: TrainingJob, profile: Profile | None, role: str = "worker", **settings: Any) -> dict[str, Any]:
    """The first pod of a role."""
    return pod_manifest(frozen_with(job, profile, **settings), role, 0)


def a_node(name: str = "n", gpus: int = 8, taints: Any = (), **labels: str) -> NodeCapacity:
    """A ready node with these labels; `_` in a name of a label stands for `/`."""
    return NodeCapacity.parse(
        {
            "metadata": {"name": name, "labels": {key.replace("_", "/"): value for key, value in labels.items()}},
            "spec": {"taints": list(taints)},
            "status": {
                "allocatable": {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        }
    )


def trained(pod: Mapping[str, Any]) -> dict[str, Any]:
    """The trained container: the only one, or the one called trainer."""
    containers = pod["spec"]["containers"]
    found: dict[str, Any] = (
        containers[0] if len(containers) == 1 else next(c for c in containers if c["name"] == "trainer")
    )
    return found
