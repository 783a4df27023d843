"""The defaults of `spec.trainer`.

They are worked out once, when a launch plan is made, so that an update of the operator or of the image in the middle of
a job's life changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from meshwright_api import reserved

DEFAULTS: Final[Mapping[str, Any]] = {
    "seed": 0,
    "determinism": "Strict",
    "objective": {},
    "data": {"format": "Text", "tokenizer": {}, "workers": 0},
    "batch": {"micro": 1, "sequenceLength": 1024},
    "optimizer": {
        "name": "AdamW",
        "learningRate": 3e-4,
        "learningRateSchedule": {"name": "Cosine", "warmupSteps": 0, "minimum": 0.0, "factor": 0.1},
        "weightDecay": 0.0,
        "betas": [0.9, 0.999],
        "epsilon": 1e-8,
        "momentum": 0.0,
    },
    "precision": "FP32",
    "parallelism": {
        "mode": "Manual",
        "pipeline": 1,
        "shard": 1,
        "shardStage": 0,
        "context": 1,
        "tensor": 1,
        "expert": 1,
        "pipelineSchedule": "1F1B",
        "virtualStages": 1,
    },
    "update": {"mode": "Synchronous"},
    "memory": {"recompute": "None"},
    "checkpoint": {"keep": 3, "resume": "Auto"},
    "evaluation": {"batches": 16},
    "logging": {"everySteps": 10},
}
"""What a field that is left out comes to. `parallelism.data`, `batch.global` and `shardStage` depend on the others."""


MESH_AXES: Final = ("pipeline", "data", "shard", "context", "tensor")
"""The axes whose sizes multiply to the number of processes, outermost first."""


def filled(section: Mapping[str, Any], world_size: int) -> dict[str, Any]:
    """The section with every default in it. Filling what is filled changes nothing.

    Args:
        section: `spec.trainer` as it is on the wire.
        world_size: training processes; an axis `data` that is left out becomes what the other axes leave of it.
    """
    full = _merged(DEFAULTS, section)
    parallelism = full["parallelism"]
    if "data" not in parallelism:
        others = math.prod(int(parallelism[axis]) for axis in MESH_AXES if axis != "data")
        parallelism["data"] = max(1, world_size // others)
    if parallelism["shard"] > 1 and "shardStage" not in (section.get("parallelism") or {}):
        parallelism["shardStage"] = 3
    batch = full["batch"]
    batch.setdefault("global", batch["micro"] * parallelism["data"] * parallelism["shard"])
    full["optimizer"]["learningRateSchedule"].setdefault("decaySteps", max(1, int(full.get("steps") or 1)))
    _fill_sources(full["data"])
    tokenizer = full["data"]["tokenizer"]
    tokenizer.setdefault("name", "BPE" if tokenizer.get("path") else "Bytes")
    if (full.get("code") or {}).get("configMap"):
        full["code"] = {**full["code"], "path": reserved.CODE_MOUNT}
    return full


def mesh_size(section: Mapping[str, Any]) -> int | None:
    """Processes that the section's mesh asks for; None if it leaves its size open by leaving out the axis `data`."""
    given = section.get("parallelism") or {}
    if given.get("data") is None:
        return None
    axes = {**DEFAULTS["parallelism"], **{axis: size for axis, size in given.items() if size is not None}}
    return math.prod(int(axes[axis]) for axis in MESH_AXES)


def _merged(defaults: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    merged = {key: _merged(value, {}) if isinstance(value, Mapping) else value for key, value in defaults.items()}
    for key, value in given.items():
        if value is None:
            continue
        below = defaults.get(key)
        is_object = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(below, value) if is_object and isinstance(below, Mapping) else value
    return merged


def _fill_sources(data: dict[str, Any]) -> None:
    """The short form `source` becomes one entry of `sources`."""
    form = data.pop("format")
    short = data.pop("source", None)
    sources = [*([{"source": short}] if short else []), *(data.get("sources") or ())]
    data["sources"] = [{"weight": 1.0, "format": form, **source} for source in sources]
