"""`spec.placement`: what a job wants of the topology."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field, JsonValue

from meshwright_api.base import ApiModel

BY_AXIS: dict[str, JsonValue] = {
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["axis", "within"],
}
"""Constraints are told apart by what they keep together and where."""

LevelName = Annotated[str, Field(min_length=1, max_length=317)]
"""Name of a topology level, or its node label: a prefix of 253 characters, a slash and a name of 63."""


class PlacementAxis(StrEnum):
    """What a placement constraint keeps together."""

    PIPELINE = "pipeline"
    DATA = "data"
    SHARD = "shard"
    CONTEXT = "context"
    TENSOR = "tensor"
    PODS = "pods"


class PlacementConstraint(ApiModel):
    """Keeps pods that talk along one mesh axis within one domain of a topology level."""

    axis: PlacementAxis
    """Mesh axis: pipeline, data, shard, context or tensor. Or pods: all pods of the job.

    Without the built-in trainer the mesh is not known, and only pods can be used."""
    within: LevelName
    """Topology level each of whose domains holds groups of the axis whole: its name in the operator's topology
    (`leaf`, `nvlink`, `node`), or its node label."""
    required: bool = False
    """Whether the job waits until this can be had. Default false: preferred, as far as all of them can be had."""


class Placement(ApiModel):
    """Where the gang may sit. Defaults come from the mesh."""

    constraints: Annotated[tuple[PlacementConstraint, ...], Field(max_length=16, json_schema_extra=BY_AXIS)] = ()
    """What is kept together, the more important first; one for each pair of axis and level, at most 16."""
    exclusive: LevelName | None = None
    """Topology level whose domains the job shares with no other TrainingJob: it waits for empty ones, and others stay
    out while it has them."""
    spread: LevelName | None = None
    """Topology level over whose domains the data replicas are dealt out evenly, each whole in one domain. Without the
    built-in trainer every pod counts as a replica."""
    balanced: bool = False
    """At every level each domain that is used gets the same number of pods, or the job waits. Default false."""
