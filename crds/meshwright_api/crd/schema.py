"""From the pydantic types to a structural schema, the dialect of OpenAPI 3.0 that a CustomResourceDefinition speaks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from meshwright_api.spec import TrainingJobSpec
from meshwright_api.status import TrainingJobStatus
from meshwright_api.template import PodTemplate
from meshwright_api.trainer import TrainerSpec

Schema = dict[str, Any]
PRESERVE = "x-kubernetes-preserve-unknown-fields"
_KEPT = frozenset(
    {"type", "format", "description", "enum", "pattern", "minLength", "maxLength", "minimum", "maximum", "maxItems"}
)


def spec_schema() -> Schema:
    """Schema of `spec`. Its objects keep unknown fields, so that a policy can refuse a typo that pruning would hide."""
    schema = structural(TrainingJobSpec, keep_unknown=True)
    _replace(schema["properties"], "trainer", structural(TrainerSpec, keep_unknown=True))
    role = schema["properties"]["roles"]["items"]["properties"]
    _replace(role, "template", structural(PodTemplate, keep_unknown=True))
    return schema


def status_schema() -> Schema:
    """Schema of `status`."""
    return structural(TrainingJobStatus, keep_unknown=False)


def structural(model: type[BaseModel], *, keep_unknown: bool) -> Schema:
    """The structural schema of a model and all that it holds.

    Args:
        model: The type.
        keep_unknown: Whether objects keep fields that the schema does not know; the API server drops them otherwise.
    """
    document = model.model_json_schema(by_alias=True)
    return _convert(document, document.get("$defs", {}), keep_unknown)


def _replace(properties: dict[str, Schema], name: str, schema: Schema) -> None:
    """Puts a typed schema in the place of a free-form one, under the description of the field."""
    properties[name] = {**schema, "description": properties[name]["description"]}


def _convert(node: Mapping[str, Any], defs: Mapping[str, Any], keep: bool) -> Schema:
    node = _inlined(node, defs)
    out: Schema = {k: v for k, v in node.items() if k in _KEPT or k.startswith("x-kubernetes-")}
    for bound, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if exclusive in node:  # a number in JSON Schema, a flag in OpenAPI 3.0
            out |= {bound: node[exclusive], exclusive: True}
    if node.get("type") == "integer":
        out["format"] = "int64"
    if "items" in node:
        out["items"] = _convert(node["items"], defs, keep)
    if "properties" in node:
        out["properties"] = {name: _convert(value, defs, keep) for name, value in node["properties"].items()}
        out |= {"required": node["required"]} if "required" in node else {}
        out |= {PRESERVE: True} if keep else {}
    elif node.get("type") == "object" and PRESERVE not in out:
        values = node.get("additionalProperties")
        out["additionalProperties"] = _convert(values, defs, keep) if isinstance(values, dict) else {PRESERVE: True}
    return out


def _inlined(node: Mapping[str, Any], defs: Mapping[str, Any]) -> dict[str, Any]:
    """The node without references and without `or null`; what it says itself wins over what it refers to."""
    own = {k: v for k, v in node.items() if k not in ("$ref", "anyOf", "default", "title")}
    if "anyOf" in node:
        choices = [choice for choice in node["anyOf"] if choice.get("type") != "null"]
        if len(choices) != 1:
            raise TypeError(f"a structural schema has no unions: {node}")
        return {**_inlined(choices[0], defs), **own}
    if "$ref" in node:
        return {**_inlined(defs[node["$ref"].rsplit("/", 1)[1]], defs), **own}
    return own
