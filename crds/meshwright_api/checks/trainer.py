"""Whether a job with the built-in trainer can be run: what it must say, and whether the parts agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import Any, Final

from meshwright_api.checks.passed_over import passed_over
from meshwright_api.errors import InvalidTrainer, Problem
from meshwright_api.reading import read
from meshwright_api.resolve import Resolved, ResolvedRole
from meshwright_api.spec import Agent, TrainingJobSpec
from meshwright_api.trainer import Checkpoint, Code, Data, Model, TrainerSpec
from meshwright_api.trainer_config import trainer_config

LOCAL_FILES: Final = "file://"
_READ_ONLY: Final = ("configMap", "secret", "projected", "downwardAPI", "image")
"""Volume sources that nothing can be written to."""
_OWN_OF_EACH_POD: Final = ("emptyDir", "ephemeral")
"""Volume sources that every pod has for itself."""


def trainer_problems(spec: TrainingJobSpec, resolved: Resolved) -> Iterator[Problem]:
    """Problems of a trainer section whose form is right."""
    if spec.trainer is None or not resolved.roles:
        return
    trainer = read(TrainerSpec, spec.trainer)
    missing = tuple(missing_problems(trainer))
    yield from missing
    yield from _roles(resolved)
    yield from _checkpoint(trainer.checkpoint or Checkpoint(), spec, resolved.roles[0])
    if not missing and len(resolved.roles) == 1:
        yield from _agreement(spec.trainer, resolved)


def missing_problems(trainer: TrainerSpec) -> Iterator[Problem]:
    """What every section must say, and what it says twice."""
    yield from _steps(trainer)
    yield from _model(trainer.model)
    yield from _data(trainer.data)
    yield from _code(trainer.code)
    yield from passed_over(trainer)


def _steps(trainer: TrainerSpec) -> Iterator[Problem]:
    if trainer.steps is None:
        yield Problem("spec.trainer.steps", "is missing; say how long to train, for example steps: 1000")


def _model(model: Model | None) -> Iterator[Problem]:
    if model is None or (model.name is None) == (model.factory is None):
        yield Problem("spec.trainer.model", "needs either a name or a factory, for example "
                      "{name: gpt3, preset: tiny}")  # fmt: skip
    start = model.init.from_ if model and model.init else None
    if start is not None and start.startswith("job/"):
        yield Problem("spec.trainer.model.init.from", f"{start}: naming a job is not part of this version; give the "
                      "path of a checkpoint")  # fmt: skip


def _data(data: Data | None) -> Iterator[Problem]:
    sources = bool(data and (data.source or data.sources))
    if data is None or sources == (data.factory is not None):
        yield Problem("spec.trainer.data", "needs either a source, or sources, or a factory, for example "
                      "{source: /data/corpus, format: Text}")  # fmt: skip


def _code(code: Code | None) -> Iterator[Problem]:
    if code is not None and (code.config_map is None) == (code.path is None):
        yield Problem("spec.trainer.code", "needs either a configMap or a path, for example {configMap: my-model}")


def _roles(resolved: Resolved) -> Iterator[Problem]:
    if len(resolved.roles) > 1:
        names = ", ".join(role.name for role in resolved.roles)
        yield Problem("spec.roles", f"the built-in trainer runs in one role in this version, not in {names}; leave all "
                      "but one out")  # fmt: skip
    role = resolved.roles[0]
    if resolved.agent is Agent.NONE and role.processes_per_pod > 1:
        yield Problem("spec.agent", f"None: only the agent starts {role.processes_per_pod} processes in each pod; "
                      "leave it out, or set roles[].processesPerPod: 1")  # fmt: skip


def _agreement(section: Mapping[str, Any], resolved: Resolved) -> Iterator[Problem]:
    role = resolved.roles[0]
    size = f"replicas {role.replicas} x processes per pod {role.processes_per_pod}"
    try:
        trainer_config(resolved.trainer or section, role.processes, size)
    except InvalidTrainer as error:
        yield from error.problems


def _checkpoint(checkpoint: Checkpoint, spec: TrainingJobSpec, role: ResolvedRole) -> Iterator[Problem]:
    path = checkpoint.path
    if path is None:
        return
    at = "spec.trainer.checkpoint.path"
    folder = path.removeprefix(LOCAL_FILES)
    if "://" in folder:
        yield Problem(at, f"{path}: object stores are not part of this version; use a folder under a volume")
    elif not folder.startswith("/"):
        yield Problem(at, f"{path} is no absolute path; use for example /checkpoints")
    elif reason := _unfit(_volume_of(folder, spec, role), role.replicas):
        yield Problem(at, f"{path} {reason}; mount a volume that all pods share there, for example spec.volumes: "
                      "[{name: checkpoints, mountPath: /checkpoints, persistentVolumeClaim: {claimName: NAME}}]"
                      )  # fmt: skip


def _unfit(volume: Mapping[str, Any] | None, pods: int) -> str:
    """Why checkpoints of that many pods cannot be kept in a volume; empty if they can."""
    if volume is None:
        return "lies under no volume, so it would be lost with its pod"
    for source in _READ_ONLY:
        if source in volume:
            return f"lies under the volume {volume.get('name')}, a {source}, which cannot be written to"
    if volume.get("readOnly"):
        return f"lies under the volume {volume.get('name')}, which is mounted read-only"
    for source in _OWN_OF_EACH_POD:
        if source in volume and pods > 1:
            return f"lies under the volume {volume.get('name')}, an {source}, of which each of the {pods} pods has one"
    return ""


def _volume_of(folder: str, spec: TrainingJobSpec, role: ResolvedRole) -> Mapping[str, Any] | None:
    """The volume that a path of the trained container lies in, with `readOnly` if it is mounted so."""
    pod = role.template.get("spec") or {}
    named = {volume.get("name"): volume for volume in pod.get("volumes") or ()}
    mounts = {mount.get("mountPath"): mount for mount in pod["containers"][role.container].get("volumeMounts") or ()}
    found = {path: {**named.get(m.get("name"), {}), "readOnly": m.get("readOnly")} for path, m in mounts.items()}
    found |= {v.mount_path: {"name": v.name, **v.source(), "readOnly": v.read_only} for v in spec.volumes}
    inner = [path for path in found if isinstance(path, str) and PurePosixPath(folder).is_relative_to(path)]
    return found[max(inner, key=lambda path: len(PurePosixPath(path).parts))] if inner else None
