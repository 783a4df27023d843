"""Small facts of the cluster that a gang's admission depends on, read when they are needed and kept for a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import Forbidden, NotFound
from meshwright.cluster.resources import NAMESPACES, PRIORITY_CLASSES, Resource

REMEMBERED_SECONDS: Final = 60.0


class Lookups:
    """Namespaces and PriorityClasses; what is gone or may not be read counts as empty."""

    def __init__(self, api: ApiServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[tuple[str, str], tuple[float, Json]] = {}

    async def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a namespace."""
        labels: Any = ((await self._get(NAMESPACES, name)).get("metadata") or {}).get("labels")
        return labels or {}

    async def priority(self, class_name: str | None) -> int:
        """Value of a PriorityClass; 0 without one."""
        return int((await self._get(PRIORITY_CLASSES, class_name)).get("value") or 0) if class_name else 0

    async def _get(self, resource: Resource, name: str) -> Json:
        now, key = self._clock(), (resource.plural, name)
        known = self._known.get(key)
        if known is None or now - known[0] > REMEMBERED_SECONDS:
            try:
                found = await self._api.get(resource, None, name)
            except (NotFound, Forbidden):
                found = {}
            known = self._known[key] = (now, found)
        return known[1]
