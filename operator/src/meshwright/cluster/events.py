"""Kubernetes events about jobs: one object per thing that happened, however often it is told.

The name of an event follows from the job's UID, the reason and a key (the attempt, say), so that a process that crashed
after posting and tells it again posts nothing new. What repeats is counted in the event's series, at most once a
minute. Events are news for people: they never delay or fail a pass, and are dropped when there are too many.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final, Literal

from meshwright import logs
from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import AlreadyExists, ApiError, NotFound, NotLeading
from meshwright.cluster.resources import EVENTS
from meshwright_api import names

logger = logging.getLogger(__name__)

CONTROLLER: Final = f"{names.GROUP}/operator"
MAX_NOTE: Final = 1024
"""The API server refuses longer notes (in bytes)."""
SERIES_SECONDS: Final = 60.0
_QUEUE: Final = 1000
_REMEMBERED: Final = 10_000

EventType = Literal["Normal", "Warning"]


@dataclass(frozen=True, slots=True)
class Subject:
    """The job that an event is about."""

    name: str
    namespace: str
    uid: str
    resource_version: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job."""

    subject: Subject
    reason: str
    """A reason of `meshwright_api.names`."""
    note: str
    """For people: a sentence with numbers."""
    action: str
    """What the operator did about it, CamelCase."""
    key: str = ""
    """What tells two happenings with the same reason apart: an attempt, an incarnation."""
    type: EventType = "Normal"
    """Warning only if a person should act."""

    @property
    def name(self) -> str:
        """Name of the Event object; the same for the same happening, in every process."""
        told = "\0".join((self.subject.uid, self.reason, self.key))
        return f"{self.subject.name[:200]}.{hashlib.sha256(told.encode()).hexdigest()[:16]}"


class TokenBucket:
    """`capacity` at once, then `per_second`."""

    def __init__(self, capacity: float, per_second: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._capacity = self._tokens = capacity
        self._per_second = per_second
        self._clock = clock
        self._at = clock()

    def take(self) -> bool:
        """Takes one, if there is one."""
        now = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


@dataclass
class _Told:
    count: int
    at: float


class EventRecorder:
    """Posts events in the background, each once."""

    def __init__(
        self,
        api: ApiServer,
        instance: str,
        *,
        bucket: TokenBucket | None = None,
        on_result: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._instance = instance[:128]
        self._bucket = bucket or TokenBucket(100, 10)
        self._on_result = on_result
        self._clock = clock
        self._queue: asyncio.Queue[Event] = asyncio.Queue(_QUEUE)
        self._told: OrderedDict[tuple[str, str], _Told] = OrderedDict()

    def record(self, event: Event) -> None:
        """Notes an event; returns at once, and never raises."""
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self._on_result("dropped")

    async def run(self) -> None:
        """Posts what was noted until cancelled."""
        while True:
            event = await self._queue.get()
            with logs.job(f"{event.subject.namespace}/{event.subject.name}"):
                self._on_result(await self._tell(event))

    async def _tell(self, event: Event) -> str:
        key = (event.subject.namespace, event.name)
        told, now = self._told.get(key), self._clock()
        if told:
            told.count += 1
        if (told and now - told.at < SERIES_SECONDS) or not self._bucket.take():
            return "dropped"
        try:
            await (self._again(event, told.count) if told else self._post(event))
        except NotLeading:
            return "dropped"
        except ApiError as error:
            logger.warning("event %s could not be posted: %s", event.reason, error)
            return "failed"
        except Exception:
            logger.exception("event %s could not be posted", event.reason)
            return "failed"
        self._remember(key, now)
        return "posted"

    def _remember(self, key: tuple[str, str], now: float) -> None:
        told = self._told.setdefault(key, _Told(1, now))
        told.at = now
        self._told.move_to_end(key)
        if len(self._told) > _REMEMBERED:
            self._told.popitem(last=False)

    async def _post(self, event: Event) -> None:
        try:
            await self._api.create(EVENTS, event.subject.namespace, self._manifest(event))
        except AlreadyExists:
            logger.debug("event %s was told before, by an earlier process", event.reason)

    async def _again(self, event: Event, count: int) -> None:
        patch: Json = {"series": {"count": max(2, count), "lastObservedTime": _micro_time()}, "note": _clip(event.note)}
        try:
            await self._api.patch(EVENTS, event.subject.namespace, event.name, patch)
        except NotFound:
            await self._post(event)  # Events live for an hour; this one is news again.

    def _manifest(self, event: Event) -> Json:
        subject = event.subject
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": subject.namespace},
            "eventTime": _micro_time(),
            "reportingController": CONTROLLER,
            "reportingInstance": self._instance,
            "action": event.action,
            "reason": event.reason,
            "type": event.type,
            "note": _clip(event.note),
            "regarding": {
                "apiVersion": names.API_VERSION,
                "kind": names.KIND,
                "name": subject.name,
                "namespace": subject.namespace,
                "uid": subject.uid,
                "resourceVersion": subject.resource_version,
            },
        }


def _clip(note: str) -> str:
    """The note, redacted (it may quote a user's program) and short enough for the API server."""
    return logs.redact(note).encode()[:MAX_NOTE].decode(errors="ignore")


def _micro_time() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
