from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.backoff import Backoff, Delays
from meshwright.cluster.errors import Gone, Unreachable
from meshwright.cluster.reflector import Reflector, Timings
from meshwright.cluster.resources import PODS
from tests.controller.cluster.builders import a_pod
from tests.controller.cluster.stub_kube import StubKube, status

FAST = Timings(silence_seconds=5.0, session_seconds=60, delays=Delays(0.01, 0.05))


class Copy:
    """A reflector of pods that keeps each pod's phase, and a log of what it reported."""

    def __init__(self, api: Any, timings: Timings = FAST) -> None:
        self.log: list[tuple[str | None, str | None]] = []
        self.reflector: Reflector[str] = Reflector(
            api, PODS, None, self.project, lambda old, new: self.log.append((old, new)), timings=timings
        )

    @staticmethod
    def project(item: Json) -> str:
        return f"{item['metadata']['name']}:{item['status'].get('phase', '')}"

    @property
    def pods(self) -> list[str]:
        return sorted(self.reflector.objects.values())


@pytest.fixture
def copy(api: ApiServer) -> Copy:
    return Copy(api)


async def test_lists_and_follows(copy: Copy, stub: StubKube, running: Any, eventually: Any) -> None:
    stub.put("pods", a_pod("a", phase="Pending"))
    async with running(copy.reflector.run()):
        await eventually(copy.reflector.synced.is_set)
        assert copy.pods == ["a:Pending"]
        stub.put("pods", a_pod("a", phase="Running"))
        stub.put("pods", a_pod("b"))
        stub.remove("pods", "a", "team")
        await eventually(lambda: copy.pods == ["b:"])
    assert copy.log == [(None, "a:Pending"), ("a:Pending", "a:Running"), (None, "b:"), ("a:Running", None)]


async def test_reports_nothing_when_nothing_that_is_kept_has_changed(
    copy: Copy, stub: StubKube, running: Any, eventually: Any
) -> None:
    stub.put("pods", a_pod("a", phase="Running"))
    async with running(copy.reflector.run()):
        await eventually(copy.reflector.synced.is_set)
        stub.put("pods", a_pod("a", phase="Running", message="something else"))
        stub.put("pods", a_pod("b"))
        await eventually(lambda: len(copy.pods) == 2)
    assert copy.log == [(None, "a:Running"), (None, "b:")]


async def test_what_vanished_unseen_is_found_by_comparing(
    copy: Copy, stub: StubKube, running: Any, eventually: Any
) -> None:
    """Deleted in the gap, and only a fresh list can tell: the fault that Kopf's own indexes have."""
    for name in ("a", "b"):
        stub.put("pods", a_pod(name))
    async with running(copy.reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        stub.remove("pods", "a", "team", silently=True)
        stub.compact()
        stub.end_watches("pods")
        await eventually(lambda: copy.pods == ["b:"])
    assert copy.log[-1] == ("a:", None)
    assert copy.reflector.relists == 1


async def test_an_object_made_again_under_its_name_is_another_one(
    copy: Copy, stub: StubKube, running: Any, eventually: Any
) -> None:
    stub.put("pods", a_pod("a", uid="first"))
    async with running(copy.reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        stub.remove("pods", "a", "team", silently=True)
        stub.put("pods", a_pod("a", uid="second", phase="New"))
        stub.compact()
        stub.end_watches("pods")
        await eventually(lambda: copy.reflector.relists)
        assert copy.reflector.objects == {"second": "a:New"}
    assert ("a:", None) in copy.log


async def test_after_an_interruption_the_watch_goes_on_without_a_list(
    copy: Copy, stub: StubKube, running: Any, eventually: Any
) -> None:
    async with running(copy.reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        stub.put("pods", a_pod("a"))
        await eventually(lambda: copy.pods)
        stub.fault = lambda request: status(503) if "watch" in request.query else None
        stub.end_watches("pods")
        await eventually(lambda: [s for s in stub.seen if s.query.get("resourceVersion") == str(stub.version)])
        stub.put("pods", a_pod("b"))
        stub.fault = None
        await eventually(lambda: copy.pods == ["a:", "b:"])
    assert copy.reflector.relists == 0


async def test_bookmarks_carry_the_version_forward(copy: Copy, stub: StubKube, running: Any, eventually: Any) -> None:
    """In a quiet collection only bookmarks keep the version young enough to go on from."""
    async with running(copy.reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        stub.compact()
        stub.emit("pods", {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(stub.version)}}})
        stub.end_watches("pods")
        await eventually(lambda: [s for s in stub.seen if s.query.get("resourceVersion") == str(stub.version)])
        await eventually(lambda: stub.watches("pods"))
    assert copy.reflector.relists == 0
    assert all(seen.query["allowWatchBookmarks"] == "true" for seen in stub.seen if "watch" in seen.query)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type": "ERROR", "object": {"kind": "Status", "code": 410, "message": "too old"}}\n',
        b'{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd has no leader"}}\n',
        b'{"type": "ERROR", "object": "text"}\n',
        b"no JSON\n",
        b'{"no": "type"}\n',
        b"[]\n",
        b'{"type": "ADDED", "object": {"metadata": {"uid": "cut o\n',
    ],
)
async def test_an_error_or_garbage_in_the_stream_means_a_fresh_list(
    copy: Copy, stub: StubKube, running: Any, eventually: Any, line: bytes
) -> None:
    async with running(copy.reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        stub.emit("pods", line)
        await eventually(lambda: copy.reflector.relists)
        stub.put("pods", a_pod("a"))
        await eventually(lambda: copy.pods == ["a:"])


@pytest.mark.parametrize(
    "item", [{}, {"metadata": {"uid": "x"}}, {"metadata": None}, {"metadata": {"uid": 7}}, "text", None]
)
async def test_a_malformed_object_is_passed_over(
    copy: Copy, stub: StubKube, running: Any, eventually: Any, item: object
) -> None:
    stub.put("pods", a_pod("a"))
    async with running(copy.reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        stub.emit("pods", {"type": "ADDED", "object": item})
        stub.put("pods", a_pod("b"))
        await eventually(lambda: copy.pods == ["a:", "b:"])
    assert copy.reflector.malformed == 1


async def test_a_malformed_object_in_a_list_is_passed_over_and_stays_known(
    copy: Copy, stub: StubKube, running: Any, eventually: Any
) -> None:
    """It exists, it just cannot be read now: to report it as deleted would be a lie."""
    stub.put("pods", a_pod("a"))
    async with running(copy.reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        broken = {**a_pod("a"), "status": None}
        stub.fault = lambda _: None
        stub.collections["pods"].objects[("team", "a")] = broken
        stub.compact()
        stub.end_watches("pods")
        await eventually(lambda: copy.reflector.relists)
        assert copy.pods == ["a:"]
    assert copy.reflector.malformed >= 1


async def test_a_callback_that_raises_blinds_nobody(
    api: ApiServer, stub: StubKube, running: Any, eventually: Any
) -> None:
    def fail(old: object, new: object) -> None:
        raise RuntimeError("a bug of ours")

    reflector: Reflector[str] = Reflector(api, PODS, None, Copy.project, fail, timings=FAST)
    async with running(reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        stub.put("pods", a_pod("a"))
        stub.put("pods", a_pod("b"))
        await eventually(lambda: len(reflector.objects) == 2)


@pytest.mark.parametrize("code", [401, 403, 404, 429, 500, 503])
async def test_no_refusal_ends_it(copy: Copy, stub: StubKube, running: Any, eventually: Any, code: int) -> None:
    stub.fault = lambda _: status(code)
    stub.put("pods", a_pod("a"))
    async with running(copy.reflector.run()) as tasks:
        await eventually(lambda: len(stub.seen) >= 3)
        assert not tasks[0].done()
        assert not copy.reflector.synced.is_set()
        stub.fault = None
        await eventually(lambda: copy.pods == ["a:"])


async def test_a_silent_watch_is_opened_anew(api: ApiServer, stub: StubKube, running: Any, eventually: Any) -> None:
    copy = Copy(api, Timings(silence_seconds=0.1, delays=Delays(0.01, 0.05)))
    async with running(copy.reflector.run()):
        await eventually(lambda: len([seen for seen in stub.seen if "watch" in seen.query]) >= 3)
    assert copy.reflector.relists == 0


async def test_a_server_that_ends_watches_at_once_is_not_hammered(
    api: ApiServer, stub: StubKube, running: Any, eventually: Any
) -> None:
    class Counted(Delays):
        drawn = 0

        def __iter__(self) -> Iterator[float]:
            for delay in super().__iter__():
                Counted.drawn += 1
                yield delay

    copy = Copy(api, Timings(delays=Counted(0.01, 0.05)))
    stub.fault = lambda request: web.Response() if "watch" in request.query else None
    async with running(copy.reflector.run()):
        await eventually(lambda: len(stub.seen) >= 6)
    watches = sum("watch" in seen.query for seen in stub.seen)
    assert Counted.drawn >= watches - 1, "a pause after each"


async def test_how_old_and_how_stuck(api: ApiServer, stub: StubKube, running: Any, eventually: Any) -> None:
    now = 100.0
    reflector: Reflector[str] = Reflector(
        api, PODS, None, Copy.project, lambda old, new: None, timings=FAST, clock=lambda: now
    )
    async with running(reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        now = 130.0
        assert reflector.age() == reflector.stuck() == 30.0
        stub.put("pods", a_pod("a"))
        await eventually(lambda: reflector.age() == 0)
        now = 200.0
        stub.fault = lambda _: status(500)
        stub.end_watches("pods")
        await eventually(lambda: reflector.stuck() == 0)
        assert reflector.age() == 70.0, "failures are signs of life, but no word of the server's"


async def test_several_pages_are_one_list(copy: Copy, stub: StubKube, running: Any, eventually: Any) -> None:
    stub.page_size = 2
    for number in range(5):
        stub.put("pods", a_pod(f"p{number}"))
    async with running(copy.reflector.run()):
        await eventually(lambda: stub.watches("pods"))
        assert len(copy.pods) == 5
        stub.put("pods", a_pod("p5"))
        await eventually(lambda: len(copy.pods) == 6)


def test_delays_grow_to_a_cap_with_jitter_for_ever_and_start_anew() -> None:
    delays = Delays(0.1, 2.0)
    first = [delay for delay, _ in zip(delays, range(50), strict=False)]
    assert all(
        0.5 * wanted <= delay <= wanted for delay, wanted in zip(first, (0.1, 0.2, 0.4, 0.8, 1.6, 2.0), strict=False)
    )
    assert all(1.0 <= delay <= 2.0 for delay in first[6:])
    assert len(set(first[6:])) > 10, "jitter"
    assert next(iter(delays)) <= 0.1
    assert not hasattr(delays, "__len__"), "Kopf would count it, and give up"


def test_a_backoff_honours_the_servers_wish_and_is_reset_by_success() -> None:
    backoff = Backoff(Delays(0.1, 1.0))
    assert backoff.delay(at_least=7.0) == 7.0
    for _ in range(5):
        backoff.delay()
    assert backoff.delay() >= 0.5
    backoff.reset()
    assert backoff.delay() <= 0.1


class History:
    """A server with a scripted past: each step is an event, an interruption, or a compaction."""

    def __init__(self, steps: list[tuple[str, str, str]]) -> None:
        self.steps = steps
        self.truth: dict[str, str] = {}
        self.version = 0
        self.oldest = 0
        self.log: list[tuple[int, Json]] = []
        self.done = asyncio.Event()

    def _item(self, uid: str) -> Json:
        return {
            "metadata": {"uid": uid, "name": uid, "resourceVersion": str(self.version)},
            "status": {"phase": self.truth[uid]},
        }

    async def pages(self, resource: object, namespace: object, *, reader: object) -> AsyncIterator[Json]:
        items = [self._item(uid) for uid in self.truth]
        yield {"metadata": {"resourceVersion": str(self.version)}, "items": items[:1]}
        yield {"metadata": {"resourceVersion": str(self.version)}, "items": items[1:]}

    async def lines(self, path: str, *, query: Mapping[str, Any], silence: float) -> AsyncIterator[bytes]:
        since = int(query["resourceVersion"])
        if since < self.oldest:
            raise Gone(410, "Expired")
        for version, event in self.log:
            if version > since:
                yield json.dumps(event).encode()
        while self.steps:
            what, uid, phase = self.steps.pop(0)
            if what == "break":
                raise Unreachable(0)
            if what == "error":
                yield b'{"type": "ERROR", "object": {"code": 410}}'
                return
            if what == "blind":  # Something happens while nobody watches, and its record is compacted away.
                self._apply(uid, phase)
                self.log.clear()
                self.oldest = self.version
                raise Unreachable(0)
            for event in self._apply(uid, phase):
                yield json.dumps(event).encode()
        self.done.set()
        await asyncio.Event().wait()

    def _apply(self, uid: str, phase: str) -> list[Json]:
        if phase == "gone" and uid not in self.truth:
            return []
        self.version += 1
        if phase == "gone":
            event = {"type": "DELETED", "object": self._item(uid)}
            del self.truth[uid]
        else:
            self.truth[uid] = phase
            event = {"type": "MODIFIED", "object": self._item(uid)}
        self.log.append((self.version, event))
        return [event]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["event", "event", "event", "break", "error", "blind"]),
        st.sampled_from("abc"),
        st.sampled_from(["Pending", "Running", "gone"]),
    ),
    max_size=25,
)


@settings(deadline=None, max_examples=150)
@given(STEPS)
def test_whatever_happens_the_copy_ends_up_true_and_every_change_was_told(steps: list[tuple[str, str, str]]) -> None:
    async def play() -> tuple[dict[str, str], dict[str, str], list[tuple[str | None, str | None]]]:
        history = History(list(steps))
        copy = Copy(history, Timings(delays=Delays(0.0, 0.0)))
        task = asyncio.ensure_future(copy.reflector.run())
        await asyncio.wait_for(history.done.wait(), 10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return history.truth, copy.reflector.objects, copy.log

    truth, objects, log = asyncio.run(play())
    assert objects == {uid: f"{uid}:{phase}" for uid, phase in truth.items()}
    told: dict[str, str | None] = {}
    for old, new in log:
        uid = str(old or new).partition(":")[0]
        assert told.get(uid) == old, "each report goes on from the one before"
        assert old != new
        told[uid] = new
    assert {uid: value for uid, value in told.items() if value} == objects
