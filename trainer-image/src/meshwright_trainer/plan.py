"""What this process is told: the job, its place among the others, and which attempt it belongs to.

Inside a pod the launch plan says it, elsewhere a job file; the place comes from the variables that torchrun and the
agent set, and without any the process is alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from meshwright_api.checks.section import section_problems
from meshwright_api.errors import InvalidTrainer
from meshwright_api.launch_plan import LaunchPlan
from meshwright_api.trainer_config import TrainerConfig, trainer_config
from meshwright_api.trainer_defaults import filled
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.job_file import overridden, read_section

PLAN_VARIABLE = "MESHWRIGHT_PLAN"
"""Path of the launch plan in a pod."""


@dataclass(frozen=True)
class Place:
    """Where a process stands among those of its job."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Rank among the processes on the same machine: which device is its own."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Place:
        """Reads RANK, WORLD_SIZE and LOCAL_RANK.

        Raises:
            InvalidLaunch: they are no numbers, or do not belong together.
        """
        try:
            place = cls(
                *(int(environment.get(name, d)) for name, d in (("RANK", 0), ("WORLD_SIZE", 1), ("LOCAL_RANK", 0)))
            )
        except ValueError as error:
            raise InvalidLaunch(f"RANK, WORLD_SIZE and LOCAL_RANK must be whole numbers: {error}") from error
        if not 0 <= place.rank < place.world_size:
            raise InvalidLaunch(f"RANK {place.rank} is not below WORLD_SIZE {place.world_size}; set both, or neither")
        return place


@dataclass(frozen=True)
class Launch:
    """One process of one attempt."""

    name: str
    """Name of the job."""
    section: Mapping[str, Any]
    """The trainer section with every default in it; kept in checkpoints."""
    config: TrainerConfig
    """The same, typed."""
    place: Place
    """Where this process stands."""
    attempt: int | None = None
    """Number of the process generation; None outside Kubernetes: one more than the checkpoints have seen."""
    run: str = ""
    """Identity of the job, so that its restarts know their own checkpoints; empty outside Kubernetes."""


def from_plan(environment: Mapping[str, str] = os.environ) -> Launch:
    """The launch of a process in a pod.

    Raises:
        InvalidLaunch: there is no plan, or it has no trainer section.
        meshwright_api.errors.PlanError: the plan cannot be read.
        meshwright_api.errors.InvalidTrainer: its trainer section cannot be run.
    """
    path = environment.get(PLAN_VARIABLE, "")
    if not path:
        raise InvalidLaunch(f"{PLAN_VARIABLE} is not set: outside a pod use `meshwright-trainer train JOB.yaml`")
    try:
        plan = LaunchPlan.from_json(Path(path).read_bytes())
    except OSError as error:
        raise InvalidLaunch(f"the launch plan cannot be read: {error}") from error
    if plan.trainer is None:
        raise InvalidLaunch(f"the job {plan.job.name} has no trainer section: it brings its own program")
    place = Place.of(environment)
    if place.world_size != plan.world_size:
        raise InvalidLaunch(f"WORLD_SIZE is {place.world_size}, but the plan has {plan.world_size} processes")
    return _launch(plan.job.name, plan.trainer, place, attempt=plan.attempt, run=plan.job.uid)


def from_file(path: Path, overrides: tuple[str, ...] = (), environment: Mapping[str, str] = os.environ) -> Launch:
    """The launch of a process outside Kubernetes.

    Args:
        path: a TrainingJob manifest (also among other documents), or a trainer section alone.
        overrides: `steps=10`, `model.dropout=0`: values laid over the section, as YAML.
        environment: what torchrun has set.

    Raises:
        InvalidLaunch: the file has no trainer section, or an override names none of its parts.
        meshwright_api.errors.InvalidTrainer: the section cannot be run.
    """
    name, section = read_section(path)
    for override in overrides:
        section = overridden(section, override)
    return _checked(name, section, Place.of(environment))


def from_section(section: Mapping[str, Any], environment: Mapping[str, str] = os.environ) -> Launch:
    """The launch of a process in a notebook or a program of one's own.

    Raises:
        meshwright_api.errors.InvalidTrainer: the section cannot be run.
    """
    return _checked("notebook", section, Place.of(environment))


def _checked(name: str, section: Mapping[str, Any], place: Place) -> Launch:
    """Outside a pod nobody has looked at the section yet."""
    if found := section_problems(section):
        raise InvalidTrainer(found)
    return _launch(name, section, place)


def _launch(name: str, section: Mapping[str, Any], place: Place, attempt: int | None = None, run: str = "") -> Launch:
    config = trainer_config(section, place.world_size, "the number of processes")
    return Launch(name, filled(section, place.world_size), config, place, attempt, run)
