"""A job file on one machine: found among other documents, with values laid over it.

The file is read as `kubectl` reads it, so that it means the same in both places: `1e-3` is a number, which YAML 1.1
calls a text, a date is a text, and a field that is given twice is an error.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import Any

import yaml

from meshwright_trainer.errors import InvalidLaunch


class _Loader(yaml.SafeLoader):
    """YAML by JSON's rules."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        """A mapping whose keys differ."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen and key.tag != "tag:yaml.org,2002:merge":
                raise yaml.constructor.ConstructorError(
                    None, None, f"the field {key.value!r} is given twice", key.start_mark
                )
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


_FLOAT = "tag:yaml.org,2002:float"
_LEFT_OUT = (_FLOAT, "tag:yaml.org,2002:timestamp")
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _LEFT_OUT]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    _FLOAT,
    re.compile(r"([-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$"),
    list("-+0123456789."),
)


def read_section(path: Path) -> tuple[str, dict[str, Any]]:
    """Name and trainer section of a job file: a TrainingJob, also among other documents, or a section alone.

    Raises:
        InvalidLaunch: it cannot be read, or there is none in it.
    """
    try:
        documents = [d for d in yaml.load_all(path.read_text(), _Loader) if isinstance(d, dict)]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise InvalidLaunch(f"the job file {path} cannot be read: {error}") from error
    for document in documents:
        if document.get("kind") == "TrainingJob":
            section = (document.get("spec") or {}).get("trainer")
            if not isinstance(section, dict):
                raise InvalidLaunch(f"the TrainingJob in {path} has no spec.trainer: it brings its own program")
            return str((document.get("metadata") or {}).get("name") or path.stem), section
    if len(documents) == 1 and "kind" not in documents[0]:
        return path.stem, documents[0]
    raise InvalidLaunch(f"{path} is neither a TrainingJob nor a trainer section alone")


def overridden(section: Mapping[str, Any], override: str) -> dict[str, Any]:
    """The section with one value laid over it.

    Args:
        section: a trainer section.
        override: `model.dropout=0`; the value is YAML.

    Raises:
        InvalidLaunch: it is no override, or goes below what has no parts.
    """
    path, equals, text = override.partition("=")
    if not equals or not path:
        raise InvalidLaunch(f"{override!r} is no override; write for example model.dropout=0")
    try:
        value = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise InvalidLaunch(f"the value of {override!r} is no YAML: {error}") from error
    return _with(section, path.removeprefix("spec.trainer.").split("."), value, override)


def _with(section: Mapping[str, Any], path: list[str], value: Any, override: str) -> dict[str, Any]:
    first, *rest = path
    below = section.get(first)
    if rest and not isinstance(below, Mapping | None):
        raise InvalidLaunch(f"{override!r} goes below {first}, which is {below!r}")
    return {**section, first: _with(below or {}, rest, value, override) if rest else value}
