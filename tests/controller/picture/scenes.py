"""Clusters and jobs as the API server has them, for pictures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright.picture.inventory import Inventory
from meshwright.placement.topology.tree import HOSTNAME, Level, Topology
from meshwright_api import names
from meshwright_api.job import TrainingJob, parse_job

SPINE, LEAF = "fabric/spine", "fabric/leaf"
TOPOLOGY = Topology((Level("spine", SPINE, 100.0), Level("leaf", LEAF, 200.0)))
Json = dict[str, Any]


def a_node(name: str, spine: str = "s0", leaf: str = "l0", *, gpus: int = 8, **given: Any) -> Json:
    """A node; `ready`, `cordoned` and `labels` may be given."""
    labels = {SPINE: spine, LEAF: leaf, HOSTNAME: name} | given.get("labels", {})
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"unschedulable": True} if given.get("cordoned") else {},
        "status": {
            "allocatable": {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": str(gpus)},
            "conditions": [{"type": "Ready", "status": "True" if given.get("ready", True) else "False"}],
        },
    }


def a_gang_pod(index: int, node: str, incarnation: int = 1, gpus: int = 8) -> Json:
    """A pod of the job that `a_job` makes."""
    owner = {"name": "gpt", "uid": "0123456789abcdef"}
    name = names.pod_name(owner["name"], owner["uid"], "worker", index, incarnation)
    return a_pod(name, node, gpus, owner=owner)


def a_pod(
    name: str, node: str = "", gpus: int = 8, *, pinned: str = "", owner: Mapping[str, str] | None = None
) -> Json:
    """A pod on a node, or pinned to one and not bound yet; `owner` has name and uid of a TrainingJob."""
    spec: Json = {"containers": [{"name": "c", "resources": {"requests": {"nvidia.com/gpu": str(gpus)}}}]}
    if node:
        spec["nodeName"] = node
    if pinned:
        field = {"key": "metadata.name", "operator": "In", "values": [pinned]}
        required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    metadata: Json = {"name": name, "namespace": "team"}
    if owner:
        kind = {"apiVersion": "meshwright.dev/v1alpha1", "kind": "TrainingJob", "controller": True}
        metadata["ownerReferences"] = [{**kind, **owner}]
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": "Running" if node else "Pending"}}


def a_job(pods: int = 2, *, gpus: int = 8, name: str = "gpt", uid: str = "0123456789abcdef") -> Json:
    """A job with an image of its own."""
    container = {"name": "trainer", "image": "torch", "command": ["python", "train.py"]}
    template = {"spec": {"containers": [container]}}
    role = {"name": "worker", "replicas": pods, "gpusPerPod": gpus, "template": template}
    return {
        "apiVersion": "meshwright.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "team", "uid": uid, "resourceVersion": "1"},
        "spec": {"roles": [role], "agent": "Inject"},
    }


def a_mesh_job(pods: int = 4, *, gpus: int = 8) -> Json:
    """A job of the built-in trainer: data 2 x shard, one rank for each GPU."""
    ranks = pods * gpus
    trainer = {
        "seed": 1,
        "model": {"name": "gpt3", "preset": "tiny"},
        "data": {"source": "builtin:stdlib", "tokenizer": {"name": "Bytes"}},
        "batch": {"global": 2 * ranks, "micro": 1, "sequenceLength": 128},
        "steps": 10,
        "optimizer": {"name": "AdamW", "learningRate": 1e-3},
        "parallelism": {"data": 2, "shard": ranks // 2, "shardStage": 3},
        "checkpoint": {"path": "/checkpoints"},
    }
    return a_job(pods, gpus=gpus) | {
        "spec": {
            "trainer": trainer,
            "roles": [{"name": "worker", "replicas": pods, "gpusPerPod": gpus}],
            "volumes": [{"name": "ckpt", "mountPath": "/checkpoints", "persistentVolumeClaim": {"claimName": "ckpt"}}],
        }
    }


def parsed(raw: Json) -> TrainingJob:
    return parse_job(raw)


def two_by_two_by_two(*pods: Json, **changed: Json) -> Inventory:
    """Two spines of two leaves of two nodes `n0` to `n7`; nodes may be replaced by name."""
    nodes = [changed.get(f"n{i}") or a_node(f"n{i}", f"s{i // 4}", f"l{i // 2}") for i in range(8)]
    return Inventory.of(nodes, pods)
