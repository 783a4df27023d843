"""What differs between the pods of a role, as data: a manifest, and the places in it that are filled in for each pod.

The frozen rendering of a gang is kept on the API server and may be read by a newer operator in the middle of a start.
The less code stands between it and a pod, the less can come out differently, so all that is left to do is to put a few
numbers into marked places.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class PerPod:
    """Stands for a string in a manifest that differs from pod to pod: a pattern with `{index}`, `{rank}`, ..."""

    pattern: str
    number: bool = False
    """Whether what comes out is a whole number and no string."""


@dataclass(frozen=True)
class Stencil:
    """A manifest with places to fill in."""

    manifest: Mapping[str, Any]
    places: tuple[tuple[Path, str], ...]
    """Where, and the pattern that is filled in there."""
    numbers: tuple[tuple[Path, str], ...] = ()
    """The same, where a whole number belongs."""

    @classmethod
    def cut(cls, tree: Mapping[str, Any]) -> Stencil:
        """From a manifest with `PerPod` values."""
        found = tuple(_find(tree, ()))
        places, numbers = (tuple((path, m.pattern) for path, m in found if m.number is n) for n in (False, True))
        return cls(json.loads(json.dumps(tree, default=lambda mark: "")), places, numbers)

    @classmethod
    def load(cls, document: Mapping[str, Any]) -> Stencil:
        """From the form of `dump`."""
        places, numbers = (
            tuple((tuple(path), pattern) for path, pattern in document.get(key) or ())
            for key in ("perPod", "perPodNumbers")
        )
        return cls(document["manifest"], places, numbers)

    def dump(self) -> dict[str, Any]:
        """As JSON can hold it."""
        document = {"manifest": self.manifest, "perPod": [[list(path), pattern] for path, pattern in self.places]}
        numbers = [[list(path), pattern] for path, pattern in self.numbers]
        return {**document, "perPodNumbers": numbers} if numbers else document

    @cached_property
    def _text(self) -> bytes:
        return msgspec.json.encode(self.manifest)

    def fill(self, values: Mapping[str, str]) -> dict[str, Any]:
        """A manifest of its own with every place filled in."""
        manifest: dict[str, Any] = msgspec.json.decode(self._text)
        for path, pattern in self.places:
            _put(manifest, path, pattern.format_map(values))
        for path, pattern in self.numbers:
            _put(manifest, path, int(pattern.format_map(values)))
        return manifest


def _put(manifest: Any, path: Path, value: object) -> None:
    parent: Any = manifest
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = value


def _find(tree: object, path: Path) -> Iterator[tuple[Path, PerPod]]:
    if isinstance(tree, PerPod):
        yield path, tree
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _find(value, (*path, key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from _find(value, (*path, index))
