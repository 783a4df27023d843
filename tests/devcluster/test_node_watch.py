"""The reflector and the status writer against a server that misbehaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, cast

import pytest

from devcluster.node import api as api_module
from devcluster.node.api import Api, backoff
from devcluster.node.errors import ApiError, ApiUnreachable
from devcluster.node.model import Pod, parse_pod
from devcluster.node.reporter import Reporter
from devcluster.node.status import PodState, Running, Verdict
from devcluster.node.watch import Reflector

Script = list[Any]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "_BACKOFF_SECONDS", (0.0,))


def _object(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"uid": f"uid-{name}", "name": name, "resourceVersion": str(version)}}


class _Server:
    """Answers lists and watches one after another; an exception in the script is raised."""

    def __init__(self, lists: Script, watches: Script) -> None:
        self.lists, self.watches = lists, watches
        self.watched_from: list[str] = []
        self.over = asyncio.Event()

    async def request(self, method: str, path: str, params: Any = None) -> Any:
        answer = self.lists.pop(0)
        if isinstance(answer, Exception):
            raise answer
        version, items = answer
        return {"metadata": {"resourceVersion": str(version)}, "items": items}

    async def watch(self, path: str, params: Any) -> AsyncIterator[Any]:
        self.watched_from.append(params["resourceVersion"])
        if not self.watches:
            self.over.set()
            await asyncio.Event().wait()
        for event in self.watches.pop(0):
            if isinstance(event, Exception):
                raise event
            yield {"type": event[0], "object": event[1]}


async def _follow(lists: Script, watches: Script) -> tuple[list[tuple[str, str, str]], _Server]:
    told: list[tuple[str, str, str]] = []

    def tell(kind: str) -> Callable[[Any], None]:
        def note(item: Any) -> None:
            told.append((kind, item["metadata"]["name"], item["metadata"]["resourceVersion"]))
            if item["metadata"]["name"] == "odd":
                raise ValueError("not understood")

        return note

    server = _Server(lists, watches)
    reflector = Reflector(cast(Api, server), "/x", changed=tell("changed"), gone=tell("gone"))
    running = asyncio.create_task(reflector.run())
    await asyncio.wait_for(server.over.wait(), 10)
    running.cancel()
    assert reflector.synced.is_set()
    return told, server


async def test_events_are_told_in_order_and_the_watch_goes_on_where_it_ended() -> None:
    first = [("ADDED", _object("b", 3)), ("BOOKMARK", _object("", 7))]
    second = [("MODIFIED", _object("a", 8)), ("DELETED", _object("b", 9))]
    told, server = await _follow([(2, [_object("a", 1)])], [first, second])
    assert told == [("changed", "a", "1"), ("changed", "b", "3"), ("changed", "a", "8"), ("gone", "b", "9")]
    assert server.watched_from == ["2", "7", "9"]


@pytest.mark.parametrize("problem", [ApiError(410, "Expired", "too old"), ApiUnreachable("reset")])
async def test_a_new_list_is_compared_with_what_was_known(problem: Exception) -> None:
    lists = [(5, [_object(name, 1) for name in "abc"]), ApiUnreachable("down"), (9, [_object("a", 1), _object("b", 7)])]
    told, server = await _follow(lists, [[problem]])
    assert told[3:] == [("gone", "c", "1"), ("changed", "b", "7")]
    assert server.watched_from == ["5", "9"]


async def test_an_object_that_is_not_understood_does_not_end_the_watch() -> None:
    told, _ = await _follow([(1, [_object("odd", 1)])], [[("ADDED", _object("odd", 2)), ("ADDED", _object("a", 3))]])
    assert told == [("changed", "odd", "1"), ("changed", "odd", "2"), ("changed", "a", "3")]


POD: Pod = parse_pod(
    {
        "metadata": {"uid": "u", "name": "p", "namespace": "ns"},
        "spec": {"containers": [{"name": "a"}]},
        "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "then"}]},
    }
)


class _Writes:
    """Notes what is written; the first answers are given by the script."""

    def __init__(self, *problems: Exception) -> None:
        self.problems = list(problems)
        self.tries = 0
        self.bodies: list[Any] = []

    async def request(self, method: str, path: str, body: Any = None, content_type: str = "") -> Any:
        self.tries += 1
        await asyncio.sleep(0.01)
        if self.problems:
            raise self.problems.pop(0)
        self.bodies.append((method, path, body))
        return {}


async def _always_on_line() -> None:
    return


def _reporter(writes: _Writes, on_line: Callable[[], Coroutine[Any, Any, None]] = _always_on_line) -> Reporter:
    return Reporter(cast(Api, writes), asyncio.Semaphore(1), on_line, POD)


def _state(ip: str) -> PodState:
    return PodState(states={"a": Running("now")}, pod_ip=ip)


async def test_only_the_newest_status_is_sent_and_never_one_twice() -> None:
    writes = _Writes()
    reporter = _reporter(writes)
    for number in range(20):
        reporter.report(POD, _state(f"10.0.0.{number}"))
        await asyncio.sleep(0)
    reporter.report(POD, _state("10.0.0.19"))
    await reporter.flushed()
    assert [body["status"]["podIP"] for _, _, body in writes.bodies][-1] == "10.0.0.19"
    assert len(writes.bodies) <= 3
    assert writes.bodies[0][2]["metadata"] == {"uid": "u"}, "never the status of a namesake"
    scheduled = next(one for one in writes.bodies[0][2]["status"]["conditions"] if one["type"] == "PodScheduled")
    assert scheduled["lastTransitionTime"] == "then"


async def test_a_status_is_sent_until_the_server_has_it() -> None:
    writes = _Writes(*[ApiUnreachable("down")] * 5)
    reporter = _reporter(writes)
    reporter.report(POD, _state("10.0.0.1"))
    await reporter.flushed()
    assert (writes.tries, len(writes.bodies)) == (6, 1)


async def test_a_pod_that_is_gone_is_not_written_again() -> None:
    writes = _Writes(ApiError(404, "NotFound", ""))
    reporter = _reporter(writes)
    reporter.report(POD, _state("10.0.0.1"))
    await reporter.flushed()
    assert (writes.tries, writes.bodies) == (1, [])


async def test_nothing_is_written_while_the_node_is_off_line() -> None:
    on_line = asyncio.Event()

    async def wait() -> None:
        await on_line.wait()

    writes = _Writes()
    reporter = _reporter(writes, wait)
    reporter.report(POD, _state("10.0.0.1"))
    reporter.reject(POD, Verdict("No", "no"))
    deletion = asyncio.create_task(reporter.delete())
    await asyncio.sleep(0.05)
    assert writes.tries == 0
    on_line.set()
    await deletion
    assert [method for method, _, _ in writes.bodies] == ["PATCH", "DELETE"]
    assert writes.bodies[0][2]["status"]["reason"] == "No"
    assert writes.bodies[1][2] == {"gracePeriodSeconds": 0, "preconditions": {"uid": "u"}}


def test_waits_between_attempts_are_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    waits = [backoff(attempt) for attempt in range(100)]
    assert waits == sorted(waits)
    assert waits[0] <= 0.2
    assert waits[-1] == 5.0
