"""`Reflector`: a copy of a collection, small, current, and honest after blindness.

List, then watch from the list's version for as long as the server can tell what changed since; when it cannot (410),
list again and compare, so that what vanished unseen is reported like any deletion. Kopf does not compare (objects
deleted while its watch is broken stay for ever), which is why pods and nodes are watched here.

Nothing ends it: not an outage, not a malformed object, not a callback that raises.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.backoff import Backoff, Delays
from meshwright.cluster.errors import ApiError, Gone
from meshwright.cluster.resources import Resource
from meshwright.cluster.shapes import WHOLE, Reader, event_of, page_of

logger = logging.getLogger(__name__)

V = TypeVar("V")
Change = Callable[[V | None, V | None], None]
"""Called with (old, new): None before an object is known, None after it is gone."""


@dataclass(frozen=True)
class Timings:
    """How patient a watch is; tests shorten it."""

    silence_seconds: float = 75.0
    """A watch without a byte for this long is dead: bookmarks come about once a minute."""
    session_seconds: int = 420
    """How long the server may keep one watch open."""
    delays: Delays = field(default_factory=Delays)


class _ListAgain(Exception):
    """The watch cannot go on from where it was."""


class Reflector(Generic[V]):
    """Keeps `objects` (by UID) like one collection of the API server, each projected to a small value.

    Attributes:
        objects: The projected values by UID.
        synced: Set once the first list is in.
        relists: Lists so far, after the first.
        malformed: Objects so far that could not be projected.
    """

    def __init__(
        self,
        api: ApiServer,
        resource: Resource,
        namespace: str | None,
        project: Callable[[Json], V],
        on_change: Change[V],
        *,
        shape: Any = Json,
        timings: Timings | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.objects: dict[str, V] = {}
        self.synced = asyncio.Event()
        self.relists = 0
        self.malformed = 0
        self._api = api
        self._resource = resource
        self._namespace = namespace
        self._project = project
        self._pages, self._events = Reader(page_of(shape)), Reader(event_of(shape))
        self._on_change = on_change
        self._timings = timings or Timings()
        self._clock = clock
        self._backoff = Backoff(self._timings.delays)
        self._version = ""
        self._heard_at = self._tried_at = clock()

    @property
    def name(self) -> str:
        """`pods`, or `pods@namespace`."""
        return self._resource.plural + (f"@{self._namespace}" if self._namespace else "")

    def age(self) -> float:
        """Seconds since the server last said anything about this collection: how old the copy may be."""
        return self._clock() - self._heard_at

    def stuck(self) -> float:
        """Seconds since anything happened here, failures included: more than a silence means that this loop is dead."""
        return self._clock() - max(self._heard_at, self._tried_at)

    async def run(self) -> None:
        """Lists and watches until cancelled."""
        while True:
            try:
                await self._list()
                while True:
                    await self._watch()
            except (_ListAgain, Gone) as reason:
                logger.info("%s: listing again: %s", self.name, reason)
            except Exception as error:
                await self._pause(error)

    async def _pause(self, error: Exception) -> None:
        self._tried_at = self._clock()
        delay = self._backoff.delay(getattr(error, "retry_after", None))
        expected = isinstance(error, ApiError)
        logger.log(
            logging.WARNING if expected else logging.ERROR,
            "%s: %s; again in %.1f s",
            self.name,
            error,
            delay,
            exc_info=None if expected else error,
        )
        await asyncio.sleep(delay)

    async def _list(self) -> None:
        """Replaces the copy by a fresh list, page by page, and reports every difference.

        Without a resource version the list is the newest there is: one served "from any version" (0) could be older
        than what this process has seen and acted upon, and would bring back the dead.
        """
        self._tried_at = self._clock()
        seen: set[str] = set()
        version = ""
        async for page in self._api.pages(self._resource, self._namespace, reader=self._pages):
            self._heard()
            version = version or str(_metadata(page).get("resourceVersion") or "")
            for item in page.get("items") or []:
                seen.add(self._put(item))
        for uid in self.objects.keys() - seen:
            self._drop(uid)
        self.relists += self.synced.is_set()
        self._version = version
        self.synced.set()

    async def _watch(self) -> None:
        """Follows changes from the last version; returns when the server ends the watch properly."""
        query: dict[str, str | int] = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": self._timings.session_seconds,
        }
        self._tried_at, events = self._clock(), 0
        path = self._resource.path(self._namespace)
        try:
            async with aclosing(self._api.lines(path, query=query, silence=self._timings.silence_seconds)) as lines:
                async for line in lines:
                    self._heard()
                    events += 1
                    self._event(line)
        except Gone:
            raise
        except ApiError as error:
            await self._pause(error)  # The version is still good: go on from it, without a list.
            return
        if not events and self._clock() - self._tried_at < 1.0:
            await asyncio.sleep(self._backoff.delay())  # A server that ends watches at once must not be hammered.

    def _heard(self) -> None:
        self._heard_at = self._clock()
        self._backoff.reset()

    def _event(self, line: bytes) -> None:
        try:
            event = self._events.read(line)
            kind, item = event["type"], event["object"]
            if kind == "ERROR":
                item = WHOLE.read(line)["object"]
        except (ValueError, KeyError, TypeError) as error:
            raise _ListAgain(f"unreadable event: {error}") from error
        if kind == "ERROR":
            raise _ListAgain(str(item.get("message") or item) if isinstance(item, Mapping) else str(item))
        if kind in ("ADDED", "MODIFIED"):
            self._put(item)
        elif kind == "DELETED":
            self._drop(str(_metadata(item).get("uid") or ""))
        version = _metadata(item).get("resourceVersion")
        if isinstance(version, str) and version:
            self._version = version

    def _put(self, item: object) -> str:
        uid = str(_metadata(item).get("uid") or "")
        try:
            if not isinstance(item, dict) or not uid:
                raise ValueError("no metadata.uid")
            new = self._project(item)
        except Exception as error:
            self.malformed += 1
            logger.error("%s: an object (uid %r) cannot be read and is passed over: %r", self.name, uid, error)
            return uid
        old = self.objects.get(uid)
        if old != new:
            self.objects[uid] = new
            self._report(old, new)
        return uid

    def _drop(self, uid: str) -> None:
        old = self.objects.pop(uid, None)
        if old is not None:
            self._report(old, None)

    def _report(self, old: V | None, new: V | None) -> None:
        try:
            self._on_change(old, new)
        except Exception:
            logger.exception("%s: a callback failed; going on", self.name)


def _metadata(item: object) -> Mapping[str, object]:
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}
