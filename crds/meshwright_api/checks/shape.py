"""Whether an object has the form of the API: known keys, right types, values within their limits."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from meshwright_api.errors import Problem
from meshwright_api.keys import LIST, KnownKeys, known_keys
from meshwright_api.reading import as_json, read
from meshwright_api.spec import TrainingJobSpec
from meshwright_api.template import PodTemplate
from meshwright_api.trainer import TrainerSpec

_KNOWN = known_keys()
_SHOWN = 80


def shape_problems(raw: object) -> tuple[Problem, ...]:
    """Problems of form. Semantic checks make sense only where there are none."""
    if not isinstance(raw, Mapping):
        return (Problem("spec", f"must be an object, for example {{roles: [...]}}, but it is {show(raw)}"),)
    unknown = tuple(p for known in _KNOWN for p in _unknown_keys(raw, known))
    return (*unknown, *_type_problems(raw))


def show(value: object) -> str:
    """A value as a message quotes it: JSON, shortened."""
    text = as_json(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _type_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    yield from _validate(TrainingJobSpec, raw, ("spec",))
    if isinstance(raw.get("trainer"), Mapping):
        yield from _validate(TrainerSpec, raw["trainer"], ("spec", "trainer"))
    roles = raw.get("roles")
    for i, role in enumerate(roles if isinstance(roles, list | tuple) else ()):
        if isinstance(role, Mapping) and isinstance(role.get("template"), Mapping):
            yield from _validate(PodTemplate, role["template"], ("spec", "roles", i, "template"))


def _validate(model: type[BaseModel], value: object, path: tuple[int | str, ...]) -> Iterator[Problem]:
    try:
        read(model, value)
    except ValidationError as error:
        for e in error.errors(include_url=False):
            yield Problem(_join((*path, *e["loc"])), _explain(e))


def _explain(error: ErrorDetails) -> str:
    value, context = show(error["input"]), error.get("ctx", {})
    match error["type"]:
        case "missing":
            return "is missing; give it a value"
        case "greater_than_equal":
            return f"{value} is too small; the least is {context['ge']}"
        case "greater_than":
            return f"{value} is too small; it must be greater than {context['gt']}"
        case "less_than_equal":
            return f"{value} is too large; the greatest is {context['le']}"
        case "enum":
            return f"{value} is not known; use one of {context['expected']}"
        case "too_long":
            return f"has {context['actual_length']} items; at most {context['max_length']} are allowed"
        case "string_too_long":
            return f"{value} is too long; at most {context['max_length']} characters are allowed"
        case "string_too_short":
            return f"{value} is too short; at least {context['min_length']} characters are needed"
        case "string_pattern_mismatch":
            return f"{value} does not match {context['pattern']}"
        case "int_type" | "int_from_float" | "int_parsing_size":
            return f"must be a whole number, for example 1, but it is {value}"
    return f"{error['msg']}, but it is {value}"


def _unknown_keys(raw: Mapping[str, Any], known: KnownKeys) -> Iterator[Problem]:
    for path, value in _at(raw, known.path, ("spec",)):
        for key in value:
            if key not in known.keys:
                yield Problem(_join((*path, key)), _unknown(key, known.keys))


def _unknown(key: str, keys: Sequence[str]) -> str:
    close = difflib.get_close_matches(key, keys, n=1)
    meant = f"did you mean {close[0]}? " if close else ""
    return f"no such field; {meant}known here: {', '.join(keys)}"


def _at(
    value: object, path: tuple[str, ...], walked: tuple[int | str, ...]
) -> Iterator[tuple[tuple[int | str, ...], Mapping[str, Any]]]:
    """Every object at a path, with the path that led to it."""
    if not path:
        if isinstance(value, Mapping):
            yield walked, value
    elif path[0] == LIST:
        for i, item in enumerate(value if isinstance(value, list | tuple) else ()):
            yield from _at(item, path[1:], (*walked, i))
    elif isinstance(value, Mapping):
        yield from _at(value.get(path[0]), path[1:], (*walked, path[0]))


def _join(path: Sequence[int | str]) -> str:
    """`spec.roles[0].replicas`, the way the API server writes paths."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")
