"""The keys that each object of the spec may have, read off the types.

An unknown key is most often a typo (`precison`), and a structural schema would drop it in silence. So the schema keeps
unknown keys, an admission policy refuses them by name, and the controller looks again; all three read this module.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel

from meshwright_api.spec import TrainingJobSpec
from meshwright_api.trainer import TrainerSpec

LIST = "[]"
"""Step of a path that stands for every item of a list."""
TEMPLATE_KEYS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("roles", LIST, "template"): ("metadata", "spec"),
    ("roles", LIST, "template", "metadata"): ("labels", "annotations"),
}
"""Keys in the pod template, as far as they are ours to judge; what is in `spec` is the API server's."""


@dataclass(frozen=True, slots=True)
class KnownKeys:
    """One object of the spec."""

    path: tuple[str, ...]
    """Where it stands below `spec`; `[]` for every item of a list."""
    keys: tuple[str, ...]
    """What it may hold."""


def known_keys() -> tuple[KnownKeys, ...]:
    """Every object of the spec with its keys, outermost first."""
    own = (KnownKeys(path, keys) for path, keys in TEMPLATE_KEYS.items())
    return (*_objects(TrainingJobSpec, ()), *_objects(TrainerSpec, ("trainer",)), *own)


def alias_of(model: type[BaseModel], name: str) -> str:
    """A field's name on the wire."""
    return model.model_fields[name].alias or name


def nested_model(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """The model that a field holds, and whether it holds a list of them; None for everything else."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return nested_model(get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        inner = [a for a in get_args(annotation) if a is not type(None)]
        return nested_model(inner[0]) if len(inner) == 1 else (None, False)
    if origin is tuple:
        return nested_model(get_args(annotation)[0])[0], True
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    return None, False


def _objects(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[KnownKeys]:
    yield KnownKeys(path, tuple(alias_of(model, name) for name in model.model_fields))
    for name, info in model.model_fields.items():
        nested, many = nested_model(info.annotation)
        if nested is not None:
            yield from _objects(nested, (*path, alias_of(model, name), *([LIST] if many else [])))
