"""Fields that are in the schema, so that the API need not change later, but whose behaviour comes with a later version.

One table: whoever builds the behaviour deletes the line, and the CRD, the controller's check and the docs follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from meshwright_api.checks.later import Later
from meshwright_api.checks.trainer_features import TRAINER_LATER
from meshwright_api.errors import Problem
from meshwright_api.keys import LIST

FEATURES_LATER: tuple[Later, ...] = (
    Later(("elastic",), "elasticity is not part of this version; leave it out and set roles[].replicas"),
    Later(
        ("queue", "backend"),
        "this backend is not part of this version; leave it out or use Native (Meshwright places the gang)",
        works=("Native",),
    ),
    Later(
        ("queue", "provisioning"),
        "asking for nodes is not part of this version; leave it out or use None",
        works=("None",),
    ),
    Later(
        ("health", "heartbeatTimeoutSeconds"),
        "an agent's silence is not judged in this version; leave it out",
    ),
    Later(
        ("health", "stragglerFactor"),
        "stragglers are not looked for in this version; leave it out",
    ),
    *TRAINER_LATER,
)
"""What this version refuses."""


def feature_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """A problem for every field of a later version that is set to something this version does not have."""
    for later in FEATURES_LATER:
        for field, value in _values(raw, later.path, "spec"):
            if value is not None and value not in later.works:
                yield Problem(field, f"{value}: {later.say}" if later.works else later.say)


def _values(value: object, path: tuple[str, ...], walked: str) -> Iterator[tuple[str, object]]:
    if not path:
        yield walked, value
    elif path[0] == LIST:
        for i, item in enumerate(value if isinstance(value, list | tuple) else ()):
            yield from _values(item, path[1:], f"{walked}[{i}]")
    elif isinstance(value, Mapping):
        yield from _values(value.get(path[0]), path[1:], f"{walked}.{path[0]}")
