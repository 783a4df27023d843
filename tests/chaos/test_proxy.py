"""The fault proxy does to calls and watches exactly what its schedule and its hook say, and nothing else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from yarl import URL

from tests.chaos.admin import JOBS
from tests.chaos.calls import Call
from tests.chaos.faults import Fault, Kind, Schedule, Window
from tests.chaos.proxy import FaultProxy, Moment, Upstream

PODS = "/api/v1/namespaces/a/pods"
FOR_EVER = 3600.0


class Server:
    """An API server of a few lines: answers with a growing resource version, and streams what it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, str, bytes]] = []
        self.version = 0
        self.watches: list[asyncio.Queue[dict[str, Any]]] = []
        self.opened = asyncio.Event()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.query.get("watch"):
            return await self.watch(request)
        self.version += 1
        header = request.headers.get("Authorization", "")
        self.seen.append((request.method, request.raw_path, header, await request.read()))
        return web.json_response({"metadata": {"resourceVersion": str(self.version)}})

    async def watch(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.watches.append(events)
        self.opened.set()
        while True:
            await response.write(json.dumps(await events.get(), separators=(",", ":")).encode() + b"\n")

    def tell(self, kind: str, name: str) -> None:
        for events in self.watches:
            events.put_nowait({"type": kind, "object": {"metadata": {"name": name}}})


class Bench:
    """A client, the proxy and the server behind it."""

    def __init__(self, proxy: FaultProxy, server: Server, client: aiohttp.ClientSession) -> None:
        self.proxy, self.server, self.client = proxy, server, client

    def fault(self, kind: Kind, *, until: float = FOR_EVER, **more: Any) -> None:
        self.proxy.begin(Schedule((Window(0, until, Fault(kind, **more)),)))

    async def get(self, path: str = PODS) -> tuple[int, Any]:
        async with self.client.get(self.proxy.url + path) as answer:
            return answer.status, await answer.json()

    async def post(self, path: str = PODS) -> int:
        async with self.client.post(self.proxy.url + path, json={"kind": "Pod"}) as answer:
            return answer.status

    @asynccontextmanager
    async def watch(self) -> AsyncIterator[AsyncIterator[dict[str, Any]]]:
        self.server.opened.clear()
        async with self.client.get(self.proxy.url + PODS + "?watch=1") as answer:
            if answer.status == 200:
                await self.server.opened.wait()
            yield self._events(answer)

    async def _events(self, answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
        async for line in answer.content:
            yield json.loads(line)


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    async with TestServer(app) as upstream:
        url = str(upstream.make_url("")).rstrip("/")
        timeout = aiohttp.ClientTimeout(total=5)
        async with FaultProxy(Upstream(url)) as proxy, aiohttp.ClientSession(timeout=timeout) as client:
            yield Bench(proxy, server, client)


async def next_of(events: AsyncIterator[dict[str, Any]]) -> tuple[str, str]:
    event = await anext(events)
    return event["type"], event["object"].get("metadata", {}).get("name", "")


async def test_passes_calls_on_unchanged_with_the_caller_s_own_token(bench: Bench) -> None:
    path = PODS + "?fieldManager=m%2Fx"
    url, headers = URL(bench.proxy.url + path, encoded=True), {"Authorization": "Bearer t"}
    async with bench.client.post(url, data=b"{}", headers=headers) as answer:
        assert answer.status == 200
    assert bench.server.seen == [("POST", path, "Bearer t", b"{}")]


async def test_counts_mutating_calls_but_no_reads_leases_or_reviews(bench: Bench) -> None:
    await bench.get()
    await bench.post()
    await bench.post("/apis/coordination.k8s.io/v1/namespaces/a/leases")
    await bench.post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
    assert bench.proxy.counted == 1
    assert next((str(p.call), p.status) for p in bench.proxy.passed) == ("create pods", 200)


@pytest.mark.parametrize("status", [401, 403, 409, 410, 429, 500, 503])
async def test_refuses_without_sending(bench: Bench, status: int) -> None:
    bench.fault(Kind.REFUSE, status=status)
    async with bench.client.post(bench.proxy.url + PODS) as answer:
        body = await answer.json()
        assert (answer.status, body["code"]) == (status, status)
        assert ("Retry-After" in answer.headers) == (status == 429)
    assert body["reason"] != "Conflict"  # a create conflicts with what exists already, never with a version
    assert bench.server.seen == []


@pytest.mark.parametrize(
    ("kind", "sent"), [(Kind.RESET_UNSENT, 0), (Kind.HANG_UNSENT, 0), (Kind.RESET_SENT, 1), (Kind.HANG_SENT, 1)]
)
async def test_loses_calls_and_answers(bench: Bench, kind: Kind, sent: int) -> None:
    bench.fault(kind, seconds=0.05 if "Hang" in kind else 0)
    with pytest.raises(aiohttp.ClientError):
        await bench.post()
    assert len(bench.server.seen) == sent
    assert bench.proxy.tally.counts == {kind: 1}


async def test_befalls_only_the_calls_it_is_about(bench: Bench) -> None:
    bench.fault(Kind.REFUSE, status=500, verbs=("create",), resources=("pods",))
    assert await bench.post("/api/v1/namespaces/a/services") == 200
    assert (await bench.get())[0] == 200
    assert await bench.post() == 500


async def test_befalls_the_share_of_calls_that_it_says_and_the_same_ones_for_the_same_seed(bench: Bench) -> None:
    async def pattern() -> list[int]:
        bench.proxy.begin(Schedule((Window(0, FOR_EVER, Fault(Kind.REFUSE, status=500, share=0.5)),), seed=7))
        return [(await bench.get())[0] for _ in range(40)]

    first = await pattern()
    assert set(first) == {200, 500}
    assert await pattern() == first


async def test_answers_reads_with_an_older_copy_and_its_older_version(bench: Bench) -> None:
    await bench.get()
    await bench.get()
    bench.fault(Kind.STALE)
    assert (await bench.get())[1]["metadata"]["resourceVersion"] == "1"
    bench.proxy.calm()
    assert (await bench.get())[1]["metadata"]["resourceVersion"] == "3"


async def test_frozen_calls_go_on_when_it_thaws(bench: Bench) -> None:
    bench.fault(Kind.FREEZE)
    async with asyncio.timeout(5):
        while not bench.proxy.tally.counts:
            await asyncio.sleep(0)
    waiting = asyncio.ensure_future(bench.get())
    done, _ = await asyncio.wait({waiting}, timeout=0.05)
    assert not done
    bench.proxy.calm()
    assert (await waiting)[0] == 200


async def test_passes_watches_on_line_by_line(bench: Bench) -> None:
    async with bench.watch() as events:
        bench.server.tell("ADDED", "one")
        assert await next_of(events) == ("ADDED", "one")
        bench.server.tell("DELETED", "one")
        assert await next_of(events) == ("DELETED", "one")


async def test_swallows_events_and_then_says_that_the_watch_has_a_gap(bench: Bench) -> None:
    bench.fault(Kind.SWALLOW, events=("DELETED",))
    async with bench.watch() as events:
        bench.server.tell("DELETED", "one")
        bench.server.tell("MODIFIED", "two")
        assert await next_of(events) == ("MODIFIED", "two")
        bench.proxy.calm()
        event = await anext(events)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
        assert [event async for event in events] == []


async def test_a_client_that_reconnects_over_a_gap_is_told_to_list_again(bench: Bench) -> None:
    bench.fault(Kind.SWALLOW)
    async with bench.watch():
        bench.server.tell("DELETED", "one")
        async with asyncio.timeout(5):
            while not bench.proxy.tally.counts:
                await asyncio.sleep(0)
        bench.proxy.cut_watches()
        bench.proxy.calm()
    async with bench.client.get(bench.proxy.url + PODS + "?watch=1") as answer:
        assert answer.status == 410
    async with bench.watch() as events:
        bench.server.tell("ADDED", "three")
        assert await next_of(events) == ("ADDED", "three")


async def test_doubles_events(bench: Bench) -> None:
    bench.fault(Kind.DUPLICATE)
    async with bench.watch() as events:
        bench.server.tell("ADDED", "one")
        assert [await next_of(events), await next_of(events)] == [("ADDED", "one")] * 2


async def test_cuts_watches_in_the_middle(bench: Bench) -> None:
    async with bench.watch() as events:
        bench.fault(Kind.CUT)
        with pytest.raises(aiohttp.ClientError):
            await anext(events)


async def test_expires_watches_properly(bench: Bench) -> None:
    async with bench.watch() as events:
        bench.fault(Kind.EXPIRE)
        assert [event["object"]["code"] async for event in events] == [410]


@pytest.mark.parametrize(("cut_at", "sent"), [(Moment.BEFORE, 0), (Moment.AFTER, 1)])
async def test_the_hook_cuts_a_counted_call_before_or_after_it_is_sent(bench: Bench, cut_at: Moment, sent: int) -> None:
    class Cut:
        async def __call__(self, count: int, call: Call, moment: Moment) -> bool:
            return not (count == 2 and moment is cut_at)

    bench.proxy.hook = Cut()
    assert await bench.post() == 200
    with pytest.raises(aiohttp.ClientError):
        await bench.post()
    assert len(bench.server.seen) == 1 + sent


@pytest.mark.parametrize(
    ("method", "target", "verb", "resource", "namespace", "name", "subresource"),
    [
        ("GET", "/api/v1/nodes?limit=500", "list", "nodes", "", "", ""),
        ("GET", "/api/v1/nodes?watch=1", "watch", "nodes", "", "", ""),
        ("GET", "/api/v1/namespaces/a", "get", "namespaces", "", "a", ""),
        ("DELETE", "/api/v1/namespaces/a/pods/p", "delete", "pods", "a", "p", ""),
        ("PATCH", f"{JOBS}/namespaces/a/trainingjobs/j/status", "patch", "trainingjobs", "a", "j", "status"),
        ("GET", "/version", "", "", "", "", ""),
    ],
)  # fmt: skip
def test_understands_request_lines(
    method: str, target: str, verb: str, resource: str, namespace: str, name: str, subresource: str
) -> None:
    call = Call.parse(1, method, target)
    assert (call.verb, call.resource, call.namespace, call.name, call.subresource) == (
        verb, resource, namespace, name, subresource,
    )  # fmt: skip
