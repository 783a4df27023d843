"""A TrainingJob as the controller reads it. The border: past `parse_job` nobody looks into raw objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic import TypeAdapter, ValidationError

from meshwright_api.base import Timestamp
from meshwright_api.checks import problems
from meshwright_api.errors import InvalidJob, Problem
from meshwright_api.reading import read, without_nulls
from meshwright_api.spec import TrainingJobSpec
from meshwright_api.status import TrainingJobStatus

_TIME: TypeAdapter[datetime] = TypeAdapter(Timestamp)


@dataclass(frozen=True, slots=True)
class Metadata:
    """The part of an object's metadata that decisions use."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A TrainingJob whose spec can be run."""

    metadata: Metadata
    spec: TrainingJobSpec
    status: TrainingJobStatus


def parse_job(obj: Mapping[str, Any]) -> TrainingJob:
    """Reads an object as the API server gave it; never trusts that admission has seen it.

    Raises:
        InvalidJob: the spec cannot be run or the status cannot be read. Nothing else is raised, whatever the object.
    """
    metadata = parse_metadata(obj)
    found: tuple[Problem, ...] = ()
    try:
        status = parse_status(obj)
    except ValidationError as error:
        status = TrainingJobStatus()
        found = tuple(_status_problem(e) for e in error.errors(include_url=False, include_context=False))
    raw = obj.get("spec") if isinstance(obj, Mapping) else None
    found += problems(raw, metadata.name)
    if found:
        raise InvalidJob(metadata, status, found)
    return TrainingJob(metadata, read(TrainingJobSpec, raw), status)


def parse_metadata(obj: Mapping[str, Any]) -> Metadata:
    """Reads what can be read; what cannot is left at its default."""
    raw = obj.get("metadata") if isinstance(obj, Mapping) else None
    if not isinstance(raw, Mapping):
        return Metadata()
    generation = raw.get("generation")
    return Metadata(
        name=_text(raw.get("name")),
        namespace=_text(raw.get("namespace")),
        uid=_text(raw.get("uid")),
        generation=generation if isinstance(generation, int) else 0,
        resource_version=_text(raw.get("resourceVersion")),
        creation_timestamp=_time(raw.get("creationTimestamp")),
        deletion_timestamp=_time(raw.get("deletionTimestamp")),
        labels=_texts(raw.get("labels")),
        annotations=_texts(raw.get("annotations")),
        finalizers=_words(raw.get("finalizers")),
    )


def parse_status(obj: Mapping[str, Any]) -> TrainingJobStatus:
    """Reads `status`.

    Raises:
        pydantic.ValidationError: somebody else has written into it, or a newer version in a form we do not know.
    """
    raw = obj.get("status") if isinstance(obj, Mapping) else None
    return TrainingJobStatus.model_validate(without_nulls(raw, TrainingJobStatus) if raw is not None else {})


def _status_problem(error: Any) -> Problem:
    path = ".".join(["status", *map(str, error["loc"])])
    return Problem(path, f"{error['msg']}, but it is {error['input']!r:.100}; only the operator may write status")


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> dict[str, str]:
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, Mapping) else {}


def _words(value: object) -> tuple[str, ...]:
    return tuple(word for word in value if isinstance(word, str)) if isinstance(value, list | tuple) else ()


def _time(value: object) -> datetime | None:
    if not isinstance(value, str):
        return None
    try:
        return _TIME.validate_python(value)
    except ValidationError:
        return None
