"""The difference between two statuses as a JSON merge patch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright_api.status import TrainingJobStatus


def as_json(status: TrainingJobStatus) -> dict[str, Any]:
    """The status as the API server stores it; what is at its default is left out."""
    return status.model_dump(mode="json", by_alias=True, exclude_defaults=True)


def merge_patch(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The smallest RFC 7386 merge patch that turns `old` into `new`; keys that are gone become null."""
    patch: dict[str, Any] = {key: None for key in old if key not in new}
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, Mapping) and isinstance(before, Mapping):
            if inner := merge_patch(before, value):
                patch[key] = inner
        elif key not in old or before != value:
            patch[key] = value
    return patch
