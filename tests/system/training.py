"""What the system tests of the trainer train, and what that comes to without Kubernetes and without faults."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from meshwright_trainer.checkpoint.digest import digest
from meshwright_trainer.checkpoint.reader import Checkpoint
from tests.system.stage import Json

PATIENCE = 240.0


def a_section(**changes: Any) -> Json:
    """A job that takes some seconds; dropout and clipping are on, and an epoch ends on the way."""
    return {
        "seed": 7,
        "model": {"name": "gpt3", "preset": "tiny", "layers": 2, "dropout": 0.1},
        "data": {"source": "/shared/text"},
        "batch": {"global": 16, "micro": 4, "sequenceLength": 96},
        "steps": 30,
        "optimizer": {"learningRate": 2e-3, "maxGradNorm": 0.5, "weightDecay": 0.1},
        "checkpoint": {"path": "/shared/checkpoints", "everySteps": 4, "keep": 2},
        "logging": {"everySteps": 1},
        **changes,
    }


def write_texts(folder: Path) -> None:
    """Documents that a run of these sizes reads more than once."""
    folder.mkdir(parents=True)
    words = ["rank", "shard", "mesh", "stage", "ring", "tensor", "data", "gang", "node", "switch", "rail"]
    draw = random.Random(0)
    for number in range(24):
        (folder / f"{number}.txt").write_text(" ".join(draw.choices(words, k=120)))


def undisturbed(shared: Path, section: Json, processes: int) -> str:
    """Hash of the final state of the same job without Kubernetes and without faults."""
    own = {**section, "data": {"source": str(shared / "text")}}
    own["checkpoint"] = {**section["checkpoint"], "path": str(shared.parent / "undisturbed")}
    job = shared.parent / "job.yaml"
    job.write_text(yaml.safe_dump(own))
    subprocess.run(
        [sys.executable, "-m", "meshwright_trainer", "train", str(job), "--processes", str(processes)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    return digest(Checkpoint.open(str(shared.parent / "undisturbed")))


def sha256(checkpoints: Path, steps: int) -> str:
    """Hash of the weights and optimizer state after the last step."""
    checkpoint = Checkpoint.open(str(checkpoints))
    assert checkpoint.manifest.step == steps
    return digest(checkpoint)
