"""An API server in memory, as far as acting needs one: names are unique, deletions name a UID, calls are noted."""

from __future__ import annotations

import asyncio
import copy
import itertools
import json
from collections.abc import Mapping
from typing import Any

from meshwright.cluster.api import METADATA_ONLY, Listing
from meshwright.cluster.errors import AlreadyExists, ApiError, NotFound
from meshwright.cluster.resources import Resource
from meshwright.cluster.shapes import WHOLE, Reader

Json = dict[str, Any]
Key = tuple[str, str, str]
Names = list[str]


class MemoryApi:
    """Stands in for `ApiServer`.

    Attributes:
        objects: What there is, by (plural, namespace, name).
        calls: (verb, plural, name) of every call that changed something.
        attempts: How often something was to be created.
        lists: Plural of every list that was read.
        refuse: Raised instead of creating, or listing, objects of that plural.
    """

    def __init__(self) -> None:
        self.objects: dict[Key, Json] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.attempts = 0
        self.lists: Names = []
        self.refuse: dict[str, ApiError] = {}
        self._numbers = itertools.count(1)

    async def create(
        self, resource: Resource, namespace: str | None, body: Json, *, accept: str = "", reader: Reader = WHOLE
    ) -> Json:
        self.attempts += 1
        if resource.plural in self.refuse:
            raise self.refuse[resource.plural]
        key = (resource.plural, namespace or "", body["metadata"]["name"])
        if key in self.objects:
            raise AlreadyExists(409, "AlreadyExists", f"{key} exists")
        stored = copy.deepcopy(body)
        stored["metadata"] |= {"uid": f"uid-{next(self._numbers)}", "namespace": namespace}
        self.objects[key] = stored
        self.calls.append(("create", resource.plural, key[2]))
        stored = copy.deepcopy(stored)
        answer = {"metadata": stored["metadata"]} if accept == METADATA_ONLY else stored
        return dict(reader.read(json.dumps(answer).encode()))

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Json:
        found = self.objects.get((resource.plural, namespace or "", name))
        if found is None:
            raise NotFound(404, "NotFound", f"{resource.plural} {name} is not there")
        return copy.deepcopy(found)

    async def list(self, resource: Resource, namespace: str | None, *, query: Mapping[str, str]) -> Listing:
        self.lists.append(resource.plural)
        await asyncio.sleep(0)
        if resource.plural in self.refuse:
            raise self.refuse[resource.plural]
        wanted = [part.partition("=") for part in query.get("labelSelector", "").split(",") if part]
        items = [
            copy.deepcopy(item)
            for (plural, where, _), item in self.objects.items()
            if (plural, where) == (resource.plural, namespace or "") and _selected(item, wanted)
        ]
        return Listing(items, "1")

    async def patch(self, resource: Resource, namespace: str | None, name: str, patch: Json) -> Json:
        """Merges into the metadata; nothing else is patched here."""
        there = self.objects[(resource.plural, namespace or "", name)]
        there["metadata"] |= {key: value for key, value in patch["metadata"].items() if key != "resourceVersion"}
        self.calls.append(("patch", resource.plural, name))
        return copy.deepcopy(there)

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Json) -> Json:
        self.objects[(resource.plural, namespace or "", name)] = copy.deepcopy(body)
        self.calls.append(("update", resource.plural, name))
        return copy.deepcopy(body)

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        key = (resource.plural, namespace or "", name)
        if key in self.objects and self.objects[key]["metadata"]["uid"] == uid:
            del self.objects[key]
            self.calls.append(("delete", resource.plural, name))

    def names(self, plural: str) -> list[str]:
        """Names of all objects of a kind."""
        return sorted(name for kind, _, name in self.objects if kind == plural)


def _selected(item: Json, wanted: list[tuple[str, str, str]]) -> bool:
    labels = item["metadata"].get("labels") or {}
    return all(key in labels and (not equals or labels[key] == value) for key, equals, value in wanted)
