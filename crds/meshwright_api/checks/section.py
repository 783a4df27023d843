"""A trainer section that no admission has looked at, as in a job file on one machine: held to the same rules."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from meshwright_api.checks.features import feature_problems
from meshwright_api.checks.shape import shape_problems
from meshwright_api.checks.trainer import missing_problems
from meshwright_api.errors import Problem
from meshwright_api.reading import read
from meshwright_api.trainer import TrainerSpec


def section_problems(section: Mapping[str, Any]) -> tuple[Problem, ...]:
    """What is wrong with a section alone, before its defaults are worked out: typos, types, limits, later features.

    Whether its parts agree with each other and with the number of processes is for `trainer_config` to say.
    """
    if found := tuple(_not_json(section, "spec.trainer")):
        return found
    raw = {"trainer": section}
    if shape := shape_problems(raw):
        return shape
    return (*feature_problems(raw), *missing_problems(read(TrainerSpec, section)))


def _not_json(value: object, at: str) -> Iterator[Problem]:
    """What no API server could hold: checkpoints keep the section as JSON too."""
    match value:
        case Mapping():
            for key, below in value.items():
                if isinstance(key, str):
                    yield from _not_json(below, f"{at}.{key}")
                else:
                    yield Problem(at, f"{key!r:.80} is no name of a field; put it in quotes")
        case list() | tuple():
            for i, item in enumerate(value):
                yield from _not_json(item, f"{at}[{i}]")
        case float() if not math.isfinite(value):
            yield Problem(at, f"must be a finite number, but it is {value}")
        case None | bool() | int() | float() | str():
            return
        case _:
            yield Problem(at, f"must be a JSON value, but it is {value!r:.80}, a {type(value).__name__}")
