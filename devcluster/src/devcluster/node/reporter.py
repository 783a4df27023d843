"""Sends pod statuses: only the newest of each pod, again and again until the API server has it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from devcluster.node import clock
from devcluster.node.api import STRATEGIC, Api, until_answered
from devcluster.node.errors import ApiError
from devcluster.node.model import Pod
from devcluster.node.status import PodState, Verdict, rejected, status_patch

PARALLEL_WRITES: Final = 16
_log = logging.getLogger(__name__)
OnLine = Callable[[], Awaitable[None]]


class Reporter:
    """The status writer of one pod.

    Writes of all pods share one semaphore, so that thousands of pods do not open thousands of requests, and each waits
    until its node is on line.
    """

    def __init__(self, api: Api, writes: asyncio.Semaphore, on_line: OnLine, pod: Pod) -> None:
        self._api, self._writes, self._on_line = api, writes, on_line
        self._path, self._uid = pod.path, pod.uid
        self._conditions: Mapping[str, Mapping[str, Any]] = pod.conditions
        self._wanted: dict[str, Any] | None = None
        self._sent: dict[str, Any] | None = None
        self._task: asyncio.Task[None] | None = None

    def report(self, pod: Pod, state: PodState) -> None:
        """Makes this the status to send."""
        status = status_patch(pod, state, clock.now(), self._conditions)
        self._conditions = {one["type"]: one for one in status["conditions"]}
        self._send(status)

    def reject(self, pod: Pod, verdict: Verdict) -> None:
        """Makes it a pod that the node refused."""
        self._send(rejected(pod, verdict, clock.now()))

    async def flushed(self) -> None:
        """Waits until nothing is left to send."""
        while self._task and not self._task.done():
            await asyncio.wait([self._task])

    async def delete(self) -> None:
        """Lets the API server remove the pod, after its last status."""
        await self.flushed()
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": self._uid}}
        await self._write("DELETE", self._path, body, "application/json")

    def close(self) -> None:
        """Drops what was not sent; the pod is gone."""
        if self._task:
            self._task.cancel()

    def _send(self, status: dict[str, Any]) -> None:
        self._wanted = status
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        while self._wanted != self._sent:
            await self._on_line()
            sending = self._wanted
            body = {"metadata": {"uid": self._uid}, "status": sending}
            await self._write("PATCH", self._path + "/status", body, STRATEGIC)
            self._sent = sending

    async def _write(self, method: str, path: str, body: Mapping[str, Any], content_type: str) -> None:
        async def once() -> None:
            await self._on_line()
            async with self._writes:
                await self._api.request(method, path, body, content_type=content_type)

        try:
            await until_answered(once)
        except ApiError as error:
            # NotFound and Conflict (of the uid) say that this pod is gone; the watch says so too.
            if error.status not in (404, 409):
                _log.error("%s %s: %s", method, path, error)
