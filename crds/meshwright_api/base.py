"""What all API types share: camelCase on the wire, frozen values, times in whole seconds UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, PlainSerializer
from pydantic.alias_generators import to_camel


class ApiModel(BaseModel):
    """Base of every type of the API. Unknown keys are ignored on reading: newer writers may know more."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, frozen=True, extra="ignore", use_attribute_docstrings=True
    )


def _whole_seconds(value: datetime) -> datetime:
    return value.astimezone(UTC).replace(microsecond=0)


def rfc3339(value: datetime) -> str:
    """The API server's form of a time: `2026-01-31T12:00:00Z`."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


Timestamp = Annotated[datetime, AfterValidator(_whole_seconds), PlainSerializer(rfc3339, when_used="json")]
"""A moment with the resolution that Kubernetes gives its own times: one second, UTC."""
