"""Small facts of the cluster that a gang's admission depends on, read when they are needed and kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import Forbidden, NotFound
from meshwright.cluster.resources import NAMESPACES, PRIORITY_CLASSES, RESOURCEQUOTAS, Resource
from meshwright.placement.queueing.quota import Quota
from meshwright_api import names

REMEMBERED_SECONDS: Final = 60.0
QUOTA_SECONDS: Final = 1.0
UNKNOWN_SECONDS: Final = 2.0
"""So soon what was not there is looked for again."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rank:
    """What a PriorityClass says of its gangs."""

    value: int = 0
    preempts: bool = False
    """Whether whole gangs of lower priority may have to end for one of these."""
    spared: bool = False
    """Whether the places of these may be taken by nobody."""

    @classmethod
    def parse(cls, item: Mapping[str, Any]) -> Rank:
        """Reads a PriorityClass.

        The annotation speaks for gangs, `preemptionPolicy` for single pods: kube-scheduler, which obeys the latter,
        would take half of a gang. So the classes for gangs say Never there, and may say something else to us.
        """
        annotations = (item.get("metadata") or {}).get("annotations") or {}
        policy = annotations.get(names.ANNOTATION_PREEMPTION_POLICY) or item.get("preemptionPolicy") or "Never"
        return cls(
            value=int(item.get("value") or 0),
            preempts=policy == "PreemptLowerPriority",
            spared=annotations.get(names.ANNOTATION_PREEMPTIBLE) == "false",
        )


class Lookups:
    """Namespaces and PriorityClasses; what is gone or may not be read counts as empty."""

    def __init__(self, api: ApiServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[str, tuple[float, Any]] = {}
        self._reading: dict[str, asyncio.Task[Any]] = {}

    async def namespace_labels(self, name: str) -> Mapping[str, str]:
        """Labels of a namespace."""
        labels: Any = ((await self._get(NAMESPACES, name)).get("metadata") or {}).get("labels")
        return labels or {}

    async def rank(self, class_name: str | None) -> Rank:
        """The rank of gangs whose jobs name that PriorityClass; without a name, the cluster's default class."""
        classes = await self._remembered(PRIORITY_CLASSES.plural, REMEMBERED_SECONDS, self._classes)
        if class_name and not any(_name(c) == class_name for c in classes):
            # It may have been made together with the job.
            classes = await self._remembered(PRIORITY_CLASSES.plural, UNKNOWN_SECONDS, self._classes)
        found = next((c for c in classes if _name(c) == class_name), None)
        if not class_name:
            defaults = [c for c in classes if c.get("globalDefault")]
            # With several the API server takes the lowest.
            found = min(defaults, key=lambda c: int(c.get("value") or 0), default=None)
        return Rank.parse(found) if found else Rank()

    async def quotas(self, namespace: str) -> tuple[Quota, ...]:
        """The ResourceQuotas of a namespace; none where they may not be read."""

        async def read() -> tuple[Quota, ...]:
            try:
                return tuple(map(Quota.parse, (await self._api.list(RESOURCEQUOTAS, namespace, query={})).items))
            except (NotFound, Forbidden):
                return ()

        return await self._remembered(f"{RESOURCEQUOTAS.plural}/{namespace}", QUOTA_SECONDS, read)

    def forget_quotas(self, namespace: str) -> None:
        """What the quotas leave has changed; that there are none has not."""
        key = f"{RESOURCEQUOTAS.plural}/{namespace}"
        self._reading.pop(key, None)
        if key in self._known and self._known[key][1]:
            del self._known[key]

    async def _classes(self) -> list[Json]:
        try:
            return (await self._api.list(PRIORITY_CLASSES, None, query={})).items
        except (NotFound, Forbidden):
            return []

    async def _get(self, resource: Resource, name: str) -> Json:
        async def read() -> Json:
            try:
                return await self._api.get(resource, None, name)
            except (NotFound, Forbidden):
                return {}

        return await self._remembered(f"{resource.plural}/{name}", REMEMBERED_SECONDS, read)

    async def _remembered(self, key: str, seconds: float, read: Callable[[], Awaitable[T]]) -> T:
        """What was read less than so many seconds ago, or what is there now; many who ask at once read it once."""
        known = self._known.get(key)
        if known is not None and self._clock() - known[0] <= seconds:
            return cast(T, known[1])
        if key not in self._reading:
            self._reading[key] = asyncio.create_task(self._read(key, read))
        return cast(T, await asyncio.shield(self._reading[key]))

    async def _read(self, key: str, read: Callable[[], Awaitable[T]]) -> T:
        began, found = self._clock(), None
        try:
            found = await read()
            return found
        finally:
            # Unless it was forgotten meanwhile.
            if self._reading.get(key) is asyncio.current_task():
                del self._reading[key]
                if found is not None:
                    self._known[key] = began, found


def _name(item: Json) -> str:
    return str((item.get("metadata") or {}).get("name") or "")
