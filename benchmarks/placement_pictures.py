"""Draws one job on two kinds of cluster, for docs/placement.md.

    python -m benchmarks.placement_pictures [FOLDER]

Writes `fat-tree.svg` and `nvl72.svg`: a mesh of pipeline 4, data 4 and tensor 8 on half-busy clusters. Nodes have names
that say nothing of where they stand, as clouds give them. With `--objects` it writes the two clusters and the job too,
so that the same pictures come from `meshwright topology -o svg --nodes CLUSTER.json -f job.yaml`.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from meshwright.picture.guessing import guess
from meshwright.picture.inventory import Inventory
from meshwright.picture.job_file import job_of
from meshwright.picture.siting import Siting
from meshwright.picture.svg import svg
from meshwright.placement.topology.presets import PRESETS

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
LABELS = ("fabric.topograph.run/tier-2", "fabric.topograph.run/tier-1", "fabric.topograph.run/tier-0")
NVLINK = "accelerator.topograph.run/domain"
HOSTNAME = "kubernetes.io/hostname"


def job(pods: int, gpus: int) -> dict[str, Any]:
    """The drawn job, 128 ranks, on pods of so many GPUs."""
    return {
        "apiVersion": "meshwright.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": "gpt3-13b", "namespace": "research"},
        "spec": {
            "trainer": {
                "seed": 1,
                "model": {"name": "gpt3", "preset": "13b"},
                "data": {"source": "/data/corpus", "format": "Text"},
                "batch": {"global": 512, "micro": 4, "sequenceLength": 2048},
                "steps": 20_000,
                "optimizer": {"name": "AdamW", "learningRate": 1.0e-4},
                "parallelism": {"mode": "Manual", "pipeline": 4, "data": 4, "tensor": 8},
                "checkpoint": {"path": "/checkpoints"},
            },
            "roles": [{"name": "worker", "replicas": pods, "gpusPerPod": gpus}],
            "volumes": [
                {
                    "name": "checkpoints",
                    "mountPath": "/checkpoints",
                    "persistentVolumeClaim": {"claimName": "checkpoints"},
                }
            ],
        },
    }


def fat_tree() -> dict[str, Any]:
    """2 spines of 4 leaves of 8 nodes with 8 GPUs each."""
    places = [(f"spine-{s}", f"leaf-{s}{leaf}", "") for s in "ab" for leaf in range(1, 5) for _ in range(8)]
    return _cluster(places, gpus=8, seed=11, busy=(4, 8, 8), share=0.42)


def nvl72() -> dict[str, Any]:
    """6 racks, each one NVLink domain of 18 nodes with 4 GPUs, under 3 leaves."""
    places = [("spine-a", f"leaf-{1 + rack // 2}", f"rack-{1 + rack}") for rack in range(6) for _ in range(18)]
    return _cluster(places, gpus=4, seed=5, busy=(2, 4, 4), share=0.45)


def _cluster(
    places: list[tuple[str, str, str]], *, gpus: int, seed: int, busy: tuple[int, ...], share: float
) -> dict[str, Any]:
    """A cluster whose nodes are in use here and there.

    Args:
        places: spine, leaf and NVLink domain of every node; without the last, each node is a domain of its own.
        gpus: of a node.
        seed: of names and use.
        busy: numbers of GPUs that pods on a node may have.
        share: of the nodes on which such a pod is.
    """
    chance = random.Random(seed)
    names = [f"ip-10-0-{number // 64}-{number % 64}" for number in chance.sample(range(1024), len(places))]
    items: list[dict[str, Any]] = []
    for name, (spine, leaf, domain) in zip(names, places, strict=True):
        labels = dict(zip(LABELS, ("core", spine, leaf), strict=True)) | {NVLINK: domain or name, HOSTNAME: name}
        ready = "False" if chance.random() < 0.03 else "True"
        allocatable = {"cpu": "128", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": str(gpus)}
        status = {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": ready}]}
        items.append(_object("Node", {"name": name, "labels": labels}, status=status))
        if chance.random() < share:
            requests = {"nvidia.com/gpu": str(chance.choice(busy))}
            container = {"name": "main", "image": "other", "resources": {"requests": requests}}
            spec = {"nodeName": name, "containers": [container]}
            metadata = {"name": f"other-{name}", "namespace": "others"}
            items.append(_object("Pod", metadata, spec=spec, status={"phase": "Running"}))
    return {"apiVersion": "v1", "kind": "List", "items": items}


def _object(kind: str, metadata: Mapping[str, Any], **rest: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **rest}


def scenes() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """Name, cluster and job of every picture."""
    yield "fat-tree", fat_tree(), job(16, 8)
    yield "nvl72", nvl72(), job(32, 4)


def pictures() -> dict[str, str]:
    """The drawings by file name."""
    found = {}
    for name, cluster, wanted in scenes():
        inventory = Inventory.of_objects([cluster])
        preset = guess(inventory.nodes)
        siting = Siting(inventory, PRESETS[preset], preset, guessed=True)
        # Its mesh is not in this version's trainer yet; where it would be is known already.
        found[f"{name}.svg"] = svg(siting.job(job_of([wanted], "default")[0]))
    return found


def main() -> None:
    """Writes the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=IMAGES)
    parser.add_argument("--objects", action="store_true", help="write the clusters and the jobs as well")
    given = parser.parse_args()
    for file, text in pictures().items():
        (given.folder / file).write_text(text)
    for name, cluster, wanted in scenes() if given.objects else ():
        (given.folder / f"{name}.json").write_text(json.dumps(cluster, indent=1))
        (given.folder / f"{name}-job.yaml").write_text(yaml.safe_dump(wanted, sort_keys=False))


if __name__ == "__main__":
    main()
