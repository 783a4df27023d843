"""Events on pods, for `kubectl describe`; best effort, as events are."""

from __future__ import annotations

import asyncio
import logging
import uuid
from typing import Final

from devcluster.node import clock
from devcluster.node.api import Api
from devcluster.node.errors import ApiError, ApiUnreachable
from devcluster.node.model import Pod

_MOST_WAITING: Final = 500
_MESSAGE_LIMIT: Final = 1024
_log = logging.getLogger(__name__)


class Recorder:
    """Queues events and posts them one after another."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._queue: asyncio.Queue[tuple[str, dict[str, object]]] = asyncio.Queue(_MOST_WAITING)

    def note(self, pod: Pod, reason: str, message: str) -> None:
        """A normal event."""
        self._put(pod, "Normal", reason, message)

    def warn(self, pod: Pod, reason: str, message: str) -> None:
        """A warning."""
        self._put(pod, "Warning", reason, message)

    async def run(self) -> None:
        """Posts until cancelled; an event that cannot be posted is dropped."""
        while True:
            namespace, event = await self._queue.get()
            try:
                await self._api.request("POST", f"/api/v1/namespaces/{namespace}/events", event)
            except (ApiError, ApiUnreachable) as error:
                _log.info("event dropped: %s", error)

    def _put(self, pod: Pod, kind: str, reason: str, message: str) -> None:
        time = clock.now()
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod.name[:200]}.{uuid.uuid4().hex[:16]}", "namespace": pod.namespace},
            "involvedObject": {
                "apiVersion": "v1", "kind": "Pod", "namespace": pod.namespace, "name": pod.name, "uid": pod.uid,
            },
            "type": kind,
            "reason": reason,
            "message": message[:_MESSAGE_LIMIT],
            "source": {"component": "devcluster-node", "host": pod.node},
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        }  # fmt: skip
        if not self._queue.full():
            self._queue.put_nowait((pod.namespace, event))
