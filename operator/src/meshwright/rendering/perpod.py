"""What differs between the pods of a role, as data: a manifest, and the places in it that are filled in for each pod.

The frozen rendering of a gang is kept on the API server and may be read by a newer operator in the middle of a start.
The less code stands between it and a pod, the less can come out differently, so all that is left to do is to put a few
numbers into marked places.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class PerPod:
    """Stands for a string in a manifest that differs from pod to pod: a pattern with `{index}`, `{rank}`, ..."""

    pattern: str


@dataclass(frozen=True)
class Stencil:
    """A manifest with places to fill in."""

    manifest: Mapping[str, Any]
    places: tuple[tuple[Path, str], ...]
    """Where, and the pattern that is filled in there."""

    @classmethod
    def cut(cls, tree: Mapping[str, Any]) -> Stencil:
        """From a manifest with `PerPod` values."""
        places = tuple(_find(tree, ()))
        return cls(json.loads(json.dumps(tree, default=lambda mark: "")), places)

    @classmethod
    def load(cls, document: Mapping[str, Any]) -> Stencil:
        """From the form of `dump`."""
        return cls(document["manifest"], tuple((tuple(path), pattern) for path, pattern in document["perPod"]))

    def dump(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {"manifest": self.manifest, "perPod": [[list(path), pattern] for path, pattern in self.places]}

    def fill(self, values: Mapping[str, str]) -> dict[str, Any]:
        """A manifest of its own with every place filled in."""
        manifest: dict[str, Any] = json.loads(json.dumps(self.manifest))
        for path, pattern in self.places:
            parent: Any = manifest
            for step in path[:-1]:
                parent = parent[step]
            parent[path[-1]] = pattern.format_map(values)
        return manifest


def _find(tree: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(tree, PerPod):
        yield path, tree.pattern
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from _find(value, (*path, key))
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from _find(value, (*path, index))
