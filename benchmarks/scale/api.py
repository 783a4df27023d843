"""The administrator's client of a benchmark: many calls in flight, and watches that count cheaply."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, Self

import aiohttp

from devcluster.cluster import Cluster

Json = dict[str, Any]
MERGE = "application/merge-patch+json"


class Refused(Exception):
    """The API server refused a call."""


class Admin:
    """Calls with every right. Bodies are bytes, so that making them is in nobody's time."""

    def __init__(self, cluster: Cluster) -> None:
        self._server, self._token = cluster.server, cluster.token()
        self._tls = ssl.create_default_context(cafile=str(cluster.ca))

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=self._tls),
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=aiohttp.ClientTimeout(total=None, sock_read=120),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: bytes | None = None, kind: str = "application/json") -> bytes:
        """One call.

        Raises:
            Refused: the server said no.
        """
        async with self._session.request(
            method, self._server + path, data=body, headers={"Content-Type": kind}
        ) as answer:
            text = await answer.read()
            if answer.status >= 400:
                raise Refused(f"{method} {path}: {answer.status} {text[:500].decode(errors='replace')}")
            return text

    async def get(self, path: str) -> Json:
        """An object or a list."""
        return dict(json.loads(await self.call("GET", path)))

    async def create(self, path: str, item: Json) -> Json:
        """Creates an object in a collection."""
        return dict(json.loads(await self.call("POST", path, json.dumps(item).encode())))

    async def create_all(self, path: str, bodies: Iterable[bytes], in_flight: int = 32) -> None:
        """Creates many objects, so many at once."""
        await self._all("POST", ((path, body) for body in bodies), in_flight)

    async def patch_all(self, patches: Iterable[tuple[str, bytes]], in_flight: int = 32) -> None:
        """Merges many patches by path."""
        await self._all("PATCH", patches, in_flight, MERGE)

    async def _all(
        self, method: str, calls: Iterable[tuple[str, bytes]], in_flight: int, kind: str = "application/json"
    ) -> None:
        waiting = iter(calls)

        async def work() -> None:
            for path, body in waiting:
                await self.call(method, path, body, kind)

        async with asyncio.TaskGroup() as group:
            for _ in range(in_flight):
                group.create_task(work())

    async def remove_all(self, path: str) -> None:
        """Deletes a collection at once and waits until it is empty."""
        options = json.dumps({"gracePeriodSeconds": 0, "propagationPolicy": "Background"}).encode()
        while True:
            await self.call("DELETE", path, options)
            if not (await self.get(f"{path}?limit=1"))["items"]:
                return
            await asyncio.sleep(0.2)

    @asynccontextmanager
    async def watching(self, path: str, judge: Callable[[bytes], str]) -> AsyncIterator[Tally]:
        """Follows a collection; what is in it already counts too.

        Args:
            path: of the collection.
            judge: what to count a line of the watch under; empty not to count it.
        """
        tally = Tally()
        version = await self._listed(path, judge, tally)
        task = asyncio.create_task(self._follow(path, version, judge, tally))
        task.add_done_callback(tally.ended)
        try:
            yield tally
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _listed(self, path: str, judge: Callable[[bytes], str], tally: Tally) -> str:
        """Counts what is there; returns the version to watch from."""
        whole = await self.get(path)
        for item in whole["items"]:
            line = json.dumps({"type": "ADDED", "object": item}, separators=(",", ":")).encode()
            if found := judge(line):
                tally.add(found)
        return str(whole["metadata"]["resourceVersion"])

    async def _follow(self, path: str, version: str, judge: Callable[[bytes], str], tally: Tally) -> None:
        """Watches; on a busy machine the API server ends watches that do not keep up, and they begin again."""
        while True:
            rest = b""
            async with self._session.get(f"{self._server}{path}?watch=1&resourceVersion={version}") as answer:
                async for chunk in answer.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        if found := judge(line):
                            tally.add(found)
            version = await self._listed(path, judge, tally)


class Tally:
    """Different things that a watch has shown."""

    def __init__(self) -> None:
        self.seen: set[str] = set()
        self.last = 0.0
        self._news = asyncio.Event()
        self._over = ""

    def add(self, what: str) -> None:
        """Notes one; the second time it is no news."""
        if what not in self.seen:
            self.seen.add(what)
            self.last = time.perf_counter()
            self._news.set()

    def ended(self, watch: asyncio.Task[None]) -> None:
        """The watch is over, and nothing more will be seen."""
        self._over = "was cancelled" if watch.cancelled() else f"ended: {watch.exception()!r}"
        self._news.set()

    async def reaches(self, count: int, seconds: float) -> float:
        """Waits until there are so many; returns when the last came.

        Raises:
            TimeoutError: there were not in time; the message says how many.
            ConnectionError: the watch is over.
        """
        deadline = time.perf_counter() + seconds
        while len(self.seen) < count:
            left = deadline - time.perf_counter()
            if self._over:
                raise ConnectionError(f"the watch {self._over} at {len(self.seen)} of {count}")
            if left <= 0:
                raise TimeoutError(f"{len(self.seen)} of {count} within {seconds:.0f} s")
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), left)
            except TimeoutError:
                continue
        return self.last


def added(line: bytes) -> str:
    """A pod that was made, by name: read without parsing, for thousands of lines a second."""
    return _name(line) if line.startswith(b'{"type":"ADDED"') else ""


def running(line: bytes) -> str:
    """A pod that runs, by name."""
    return _name(line) if b'"phase":"Running"' in line and not line.startswith(b'{"type":"DELETED"') else ""


def _name(line: bytes) -> str:
    return line.partition(b'"name":"')[2].partition(b'"')[0].decode()
