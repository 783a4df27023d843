"""A fault proxy between one operator and the API server.

Downstream it speaks plain HTTP on a loopback port, upstream HTTPS; the client's own token passes through, so that
RBAC applies and the audit log names the operator. What goes wrong is data (`faults.Schedule`); beyond that, a hook may
step in before a counted call, or a write of the Lease, is sent on and before its answer is given: that is how a crash
sweep kills the operator at the k-th call, and how a call of an old leader is held until there is a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import ssl
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol, Self

import aiohttp
from aiohttp import web
from yarl import URL

from tests.chaos.calls import Call
from tests.chaos.faults import Fault, Interference, Kind, Schedule, Tally
from tests.chaos.streams import EXPIRED_BODY, Stream

_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_OLD_COPIES = 6


class Moment(StrEnum):
    """When the hook is asked about a counted call."""

    BEFORE = "before"
    AFTER = "after"


class Hook(Protocol):
    """Steps in at counted calls, and at writes of the Lease, which have numbers of their own."""

    async def __call__(self, count: int, call: Call, moment: Moment) -> bool:
        """Returns whether the call goes on; if not, its connection is reset."""


@dataclass(slots=True)
class Passed:
    """A mutating call that reached the API server."""

    call: Call
    sent_at: float
    status: int = 0


@dataclass(frozen=True, slots=True)
class Upstream:
    """Where the API server is."""

    server: str
    ca: Path | None = None

    def session(self) -> aiohttp.ClientSession:
        """A session that adds nothing of its own to what passes through it."""
        context = ssl.create_default_context(cafile=str(self.ca) if self.ca else None)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=context),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=5),
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding", "Content-Type"),
        )


@dataclass(slots=True)
class _Answer:
    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    def response(self) -> web.Response:
        headers = {"Content-Type": "application/json"} | dict(self.headers)
        return web.Response(status=self.status, body=self.body, headers=headers)


class FaultProxy:
    """One proxy, for one operator.

    Attributes:
        url: Where the operator finds it; known once started.
        counted: Counted calls so far.
        calls: How many calls came, by (verb, resource).
        passed: Every mutating call that was sent on, with the API server's answer.
        tally: How often each fault happened.
    """

    def __init__(self, upstream: Upstream, *, hook: Hook | None = None) -> None:
        self.url = ""
        self.hook = hook
        self.counted = 0
        self.calls: Counter[tuple[str, str]] = Counter()
        self.passed: list[Passed] = []
        self.tally = Tally()
        self._upstream = upstream
        self._schedule, self._began = Schedule(), 0.0
        self._chance = random.Random(0)
        self._numbers = 0
        self._streams: set[Stream] = set()
        self._gaps: set[str] = set()
        self._copies: dict[str, deque[_Answer]] = defaultdict(lambda: deque(maxlen=_OLD_COPIES))
        self._thaw = asyncio.Event()
        self._thaw.set()
        self._arrived = asyncio.Event()
        self._clockwork: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._session = self._upstream.session()
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._serve)
        self._runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._clockwork:
            self._clockwork.cancel()
        self.cut_watches()
        await self._runner.cleanup()
        await self._session.close()

    def begin(self, schedule: Schedule) -> None:
        """Lets the faults of a schedule happen from now on; an empty one ends them."""
        if self._clockwork:
            self._clockwork.cancel()
        self._schedule, self._began = schedule, time.monotonic()
        self._chance = random.Random(schedule.seed)
        self._thaw.set()
        self._mend()
        self._clockwork = asyncio.ensure_future(self._run_clockwork(schedule))

    def calm(self) -> None:
        """No more faults; watches that lost events say so."""
        self.begin(Schedule())

    async def until(self, condition: Callable[[], bool], seconds: float = 30.0) -> None:
        """Waits until something holds of the calls that came.

        Raises:
            TimeoutError: It did not.
        """
        async with asyncio.timeout(seconds):
            while not condition():
                self._arrived.clear()
                await self._arrived.wait()

    def cut_watches(self) -> None:
        """Ends every open watch in the middle."""
        for stream in self._streams:
            stream.cut()

    async def _run_clockwork(self, schedule: Schedule) -> None:
        """What happens at the edges of windows."""
        edges = [(window.start, True, window.fault) for window in schedule.windows]
        edges += [(window.end, False, window.fault) for window in schedule.windows]
        for at, begins, fault in sorted(edges, key=lambda edge: edge[:2]):
            await asyncio.sleep(max(0.0, self._began + at - time.monotonic()))
            self._edge(fault, begins)

    def _edge(self, fault: Fault, begins: bool) -> None:
        if fault.kind is Kind.FREEZE:
            frozen = any(f.kind is Kind.FREEZE for f in self._schedule.active(self._now()))
            (self._thaw.clear if begins and frozen else self._thaw.set)()
            self.tally.counts[Kind.FREEZE] = self.tally.counts.get(Kind.FREEZE, 0) + begins
        elif begins and fault.kind in (Kind.CUT, Kind.EXPIRE):
            for stream in [s for s in self._streams if fault.befalls(s.call)]:
                self.tally.add(fault.kind)
                stream.cut() if fault.kind is Kind.CUT else stream.expire()
        elif not begins and fault.kind is Kind.SWALLOW:
            self._mend()

    def _mend(self) -> None:
        """A watch with a gap must not go on as if there were none."""
        for stream in self._streams:
            if stream.call.path in self._gaps:
                stream.expire()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _active(self) -> Iterator[Fault]:
        return self._schedule.active(self._now())

    async def _wait_thawed(self) -> None:
        await self._thaw.wait()

    async def _serve(self, request: web.Request) -> web.StreamResponse:
        self._numbers += 1
        call = Call.parse(self._numbers, request.method, request.raw_path)
        self.calls[call.verb, call.resource] += 1
        self._arrived.set()
        body = await request.read()
        if not call.mutating:
            return await self._handle(request, call, body)
        # A call that has arrived takes its course, even if the caller is killed meanwhile.
        return await asyncio.shield(asyncio.ensure_future(self._handle(request, call, body)))

    async def _handle(self, request: web.Request, call: Call, body: bytes) -> web.StreamResponse:
        await self._thaw.wait()
        count = self._count(call)
        if count and self.hook and not await self.hook(count, call, Moment.BEFORE):
            return _reset(request)
        fate = Interference.draw(call, self._active(), iter(self._chance.random, None))
        if fate.delay:
            self.tally.add(Kind.DELAY)
            await asyncio.sleep(fate.delay)
        if fate.unsent:
            return await self._unsent(request, call, fate.unsent)
        if call.verb == "watch":
            return await self._watch(request, call, body)
        if fate.stale and (copies := self._copies.get(_key(call))):
            self.tally.add(Kind.STALE)
            return copies[0].response()
        return await self._pass_on(request, call, body, count, fate.lost)

    def _count(self, call: Call) -> int:
        """Its number among the counted calls, or among the writes of the Lease; 0 for all others."""
        if call.counted:
            self.counted += 1
            return self.counted
        if call.mutating and call.resource == "leases":
            return self.calls[call.verb, call.resource]
        return 0

    async def _pass_on(
        self, request: web.Request, call: Call, body: bytes, count: int, lost: Fault | None
    ) -> web.StreamResponse:
        note = Passed(call, time.monotonic())
        if call.mutating:
            self.passed.append(note)
        try:
            answer = await self._forward(request, call, body)
        except aiohttp.ClientError:
            return _reset(request)
        note.status = answer.status
        if call.verb in ("get", "list"):
            self._remember(call, answer)
        await self._thaw.wait()
        if count and self.hook and not await self.hook(count, call, Moment.AFTER):
            return _reset(request)
        if lost:
            self.tally.add(lost.kind)
            await asyncio.sleep(lost.seconds)
            return _reset(request)
        return answer.response()

    async def _unsent(self, request: web.Request, call: Call, fault: Fault) -> web.StreamResponse:
        self.tally.add(fault.kind)
        await asyncio.sleep(fault.seconds)
        return _refusal(call, fault.status).response() if fault.kind is Kind.REFUSE else _reset(request)

    async def _forward(self, request: web.Request, call: Call, body: bytes) -> _Answer:
        async with self._session.request(
            call.method, self._address(call), headers=_headers(request), data=body or None
        ) as upstream:
            raw = await upstream.read()
            kept = {k: v for k, v in upstream.headers.items() if k in ("Content-Type", "Retry-After")}
            return _Answer(upstream.status, raw, kept)

    async def _watch(self, request: web.Request, call: Call, body: bytes) -> web.StreamResponse:
        if call.path in self._gaps and not self._swallows(call):
            self._gaps.discard(call.path)
            return _Answer(410, EXPIRED_BODY).response()
        try:
            async with self._session.get(self._address(call), headers=_headers(request)) as upstream:
                if upstream.status != 200:
                    return _Answer(upstream.status, await upstream.read()).response()
                return await self._stream(request, call, upstream)
        except aiohttp.ClientError:
            return _reset(request)

    async def _stream(self, request: web.Request, call: Call, upstream: aiohttp.ClientResponse) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        stream = Stream(call, self._active, self._wait_thawed, self.tally, self._gaps)
        self._streams.add(stream)
        try:
            proper = await stream.run(upstream, response)
        finally:
            self._streams.discard(stream)
        if not proper:
            return _reset(request, response)
        with contextlib.suppress(ConnectionError):
            await response.write_eof()
        return response

    def _swallows(self, call: Call) -> bool:
        return any(f.kind is Kind.SWALLOW and f.befalls(call) for f in self._active())

    def _remember(self, call: Call, answer: _Answer) -> None:
        if call.verb == "list" and not any(s.call.path == call.path for s in self._streams):
            self._gaps.discard(call.path)  # who lists anew and then watches from there has missed nothing
        if answer.status == 200:
            self._copies[_key(call)].append(answer)

    def _address(self, call: Call) -> URL:
        return URL(self._upstream.server + call.target, encoded=True)


def _key(call: Call) -> str:
    """Reads of the same address with the same selector are copies of each other."""
    return call.path + "?" + call.query.get("labelSelector", "") + call.query.get("continue", "")


def _headers(request: web.Request) -> dict[str, str]:
    kept = ("Authorization", "Content-Type", "Accept", "User-Agent")
    return {name: request.headers[name] for name in kept if name in request.headers}


def _refusal(call: Call, status: int) -> _Answer:
    reason = "AlreadyExists" if (status, call.verb) == (409, "create") else _REASONS.get(status, "InternalError")
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "message": f"a fault: {status}",
        "reason": reason,
        "code": status,
    }
    return _Answer(status, json.dumps(body).encode(), {"Retry-After": "1"} if status == 429 else {})


def _reset(request: web.Request, response: web.StreamResponse | None = None) -> web.StreamResponse:
    """Breaks the connection without (the rest of) an answer."""
    if request.transport:
        request.transport.abort()
    return response or web.Response(status=502)
