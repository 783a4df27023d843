"""Raw JSON values to types, by the API server's rules."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel

from meshwright_api.keys import alias_of, nested_model

Model = TypeVar("Model", bound=BaseModel)


def without_nulls(value: Any, model: type[BaseModel]) -> Any:
    """Drops fields that are null from our own objects, as the API server does; other parts stay as they are."""
    if not isinstance(value, Mapping):
        return value
    nested = _nested(model)
    return {k: _field_without_nulls(v, *nested.get(k, (None, False))) for k, v in value.items() if v is not None}


@cache
def _nested(model: type[BaseModel]) -> dict[str, tuple[type[BaseModel], bool]]:
    """By name on the wire, the fields that hold other models, and whether each holds a list of them."""
    held = {alias_of(model, name): nested_model(info.annotation) for name, info in model.model_fields.items()}
    return {name: (inner, many) for name, (inner, many) in held.items() if inner is not None}


def _field_without_nulls(value: Any, model: type[BaseModel] | None, many: bool) -> Any:
    if model is None:
        return value
    if many and isinstance(value, list | tuple):
        return [without_nulls(item, model) for item in value]
    return value if many else without_nulls(value, model)


def read(model: type[Model], value: Any) -> Model:
    """An instance of the model from raw JSON values, by the API server's rules: `"5"` is no number, null is absent.

    Raises:
        pydantic.ValidationError: the value does not have the model's form.
    """
    return model.model_validate_json(as_json(without_nulls(value, model)), strict=True)


def as_json(value: object) -> str:
    """JSON of a value; for what JSON cannot hold (and the API server never sends) a text that fits nowhere."""
    try:
        return json.dumps(value)
    except (TypeError, ValueError, RecursionError):
        return '"(no JSON value)"'
