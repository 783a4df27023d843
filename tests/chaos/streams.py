"""One open watch that passes through the proxy, line by line, and may be cut, expired, thinned or doubled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from aiohttp import web

from tests.chaos.calls import Call
from tests.chaos.faults import Fault, Kind, Tally

_EXPIRED_STATUS: Final = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Failure",
    "message": "too old resource version (fault)",
    "reason": "Expired",
    "code": 410,
}
EXPIRED: Final = json.dumps({"type": "ERROR", "object": _EXPIRED_STATUS}).encode() + b"\n"
EXPIRED_BODY: Final = json.dumps(_EXPIRED_STATUS).encode()


def event_type(line: bytes) -> str:
    """The type of a watch event, without parsing what it carries."""
    head = line[:40]
    start = head.find(b'"type":"')
    return head[start + 8 : head.find(b'"', start + 8)].decode() if start >= 0 else ""


@dataclass(eq=False)
class Stream:
    """One watch.

    Attributes:
        call: The request that opened it.
        gaps: Addresses of the collections of which a client missed events; shared by all streams of a proxy.
    """

    call: Call
    faults: Callable[[], Iterable[Fault]]
    thawed: Callable[[], Awaitable[None]]
    tally: Tally
    gaps: set[str]
    _farewell: bytes | None = None
    _pump: asyncio.Task[None] | None = field(default=None, repr=False)

    async def run(self, upstream: aiohttp.ClientResponse, downstream: web.StreamResponse) -> bool:
        """Passes events on until either side ends; returns whether the end was a proper one."""
        self._pump = asyncio.ensure_future(self._copy(upstream, downstream))
        try:
            await asyncio.wait({self._pump})
        finally:
            self._pump.cancel()
        if self._pump.cancelled():
            if self._farewell is None:
                return False
            with suppress(ConnectionError):
                await downstream.write(self._farewell)
            return True
        return self._pump.exception() is None

    def cut(self) -> None:
        """Ends it in the middle."""
        self._end(None)

    def expire(self) -> None:
        """Ends it with the news that it cannot go on from where it is."""
        self._end(EXPIRED)

    def _end(self, farewell: bytes | None) -> None:
        self._farewell = farewell
        if self._pump:
            self._pump.cancel()

    async def _copy(self, upstream: aiohttp.ClientResponse, downstream: web.StreamResponse) -> None:
        rest = b""
        async for chunk in upstream.content.iter_any():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                await self.thawed()
                for _ in range(self._copies(line)):
                    await downstream.write(line + b"\n")

    def _copies(self, line: bytes) -> int:
        """How often this event reaches the client."""
        copies = 1
        for fault in self.faults():
            if fault.kind not in (Kind.SWALLOW, Kind.DUPLICATE) or not fault.befalls(self.call):
                continue
            kind = event_type(line)
            if kind in ("BOOKMARK", "ERROR") or (fault.events and kind not in fault.events):
                continue
            self.tally.add(fault.kind)
            if fault.kind is Kind.SWALLOW:
                self.gaps.add(self.call.path)
                return 0
            copies = 2
        return copies
