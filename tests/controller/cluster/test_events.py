from __future__ import annotations

from typing import Any

import pytest

from meshwright import logs
from meshwright.cluster.api import ApiServer
from meshwright.cluster.errors import NotLeading
from meshwright.cluster.events import MAX_NOTE, Event, EventRecorder, Subject, TokenBucket
from tests.controller.cluster.stub_kube import StubKube, status

JOB = Subject("gpt", "team", "uid-1", "7")


def an_event(reason: str = "Placed", note: str = "2 pods on 1 node.", key: str = "1", **fields: Any) -> Event:
    return Event(fields.pop("subject", JOB), reason, note, "Admit", key, **fields)


class Desk:
    """A recorder with a clock and a list of its results."""

    def __init__(self, api: ApiServer, bucket: TokenBucket | None = None) -> None:
        self.now = 0.0
        self.results: list[str] = []
        self.recorder = EventRecorder(
            api, "operator_1", bucket=bucket, on_result=self.results.append, clock=lambda: self.now
        )

    async def tell(self, *events: Event, running: Any, eventually: Any) -> None:
        wanted = len(self.results) + len(events)
        for event in events:
            self.recorder.record(event)
        async with running(self.recorder.run()):
            await eventually(lambda: len(self.results) >= wanted)


@pytest.fixture
def desk(api: ApiServer) -> Desk:
    return Desk(api)


async def test_an_event_says_what_happened_to_which_job(
    desk: Desk, stub: StubKube, running: Any, eventually: Any
) -> None:
    event = an_event(type="Warning")
    await desk.tell(event, running=running, eventually=eventually)

    (posted,) = stub.collections["events"].objects.values()
    assert desk.results == ["posted"]
    assert posted["regarding"] == {
        "apiVersion": "meshwright.dev/v1alpha1",
        "kind": "TrainingJob",
        "name": "gpt",
        "namespace": "team",
        "uid": "uid-1",
        "resourceVersion": "7",
    }
    assert (posted["reason"], posted["action"], posted["type"]) == ("Placed", "Admit", "Warning")
    assert posted["note"] == "2 pods on 1 node."
    assert stub.requests("POST")[0].path == "/apis/events.k8s.io/v1/namespaces/team/events"


async def test_the_same_happening_is_one_event_also_after_a_crash(
    desk: Desk, api: ApiServer, stub: StubKube, running: Any, eventually: Any
) -> None:
    await desk.tell(an_event(), running=running, eventually=eventually)
    after = Desk(api)
    await after.tell(an_event(), running=running, eventually=eventually)

    assert len(stub.collections["events"].objects) == 1
    assert after.results == ["posted"]


@pytest.mark.parametrize(
    "other",
    [an_event(key="2"), an_event(reason="Starting"), an_event(subject=Subject("gpt", "team", "uid-2"))],
)
async def test_another_happening_is_another_event(
    desk: Desk, stub: StubKube, running: Any, eventually: Any, other: Event
) -> None:
    await desk.tell(an_event(), other, running=running, eventually=eventually)
    assert len(stub.collections["events"].objects) == 2


async def test_what_repeats_is_counted_in_its_series_once_a_minute(
    desk: Desk, stub: StubKube, running: Any, eventually: Any
) -> None:
    for second in (0, 10, 20, 70):
        desk.now = second
        await desk.tell(an_event(note=f"at {second}"), running=running, eventually=eventually)

    assert desk.results == ["posted", "dropped", "dropped", "posted"]
    (posted,) = stub.collections["events"].objects.values()
    assert posted["series"]["count"] == 4
    assert posted["note"] == "at 70"
    assert len(stub.requests("PATCH")) == 1


async def test_an_event_whose_object_has_expired_is_posted_again(
    desk: Desk, stub: StubKube, running: Any, eventually: Any
) -> None:
    await desk.tell(an_event(), running=running, eventually=eventually)
    stub.remove("events", an_event().name, "team")
    desk.now = 4000
    await desk.tell(an_event(), running=running, eventually=eventually)
    assert len(stub.collections["events"].objects) == 1
    assert desk.results == ["posted", "posted"]


async def test_too_many_are_dropped(api: ApiServer, stub: StubKube, running: Any, eventually: Any) -> None:
    desk = Desk(api, TokenBucket(2, 1.0, clock=lambda: 0.0))
    await desk.tell(*(an_event(key=str(n)) for n in range(5)), running=running, eventually=eventually)
    assert desk.results == ["posted", "posted", "dropped", "dropped", "dropped"]


def test_a_bucket_fills_again() -> None:
    now = 0.0
    bucket = TokenBucket(1, 0.5, clock=lambda: now)
    assert [bucket.take(), bucket.take()] == [True, False]
    now = 2.0
    assert [bucket.take(), bucket.take()] == [True, False]


def test_noting_never_blocks_however_many(api: ApiServer) -> None:
    desk = Desk(api)
    for number in range(1500):
        desk.recorder.record(an_event(key=str(number)))
    assert desk.results == ["dropped"] * 500


async def test_a_failure_is_only_counted(desk: Desk, stub: StubKube, running: Any, eventually: Any) -> None:
    stub.fault = lambda _: status(500)
    await desk.tell(an_event(), running=running, eventually=eventually)
    stub.fault = None
    await desk.tell(an_event(), running=running, eventually=eventually)
    assert desk.results == ["failed", "posted"]


async def test_who_does_not_lead_tells_nothing(
    desk: Desk, api: ApiServer, stub: StubKube, running: Any, eventually: Any
) -> None:
    def fence() -> None:
        raise NotLeading("another does")

    api.before_write = fence
    await desk.tell(an_event(), running=running, eventually=eventually)
    assert desk.results == ["dropped"]
    assert not stub.seen


async def test_notes_are_short_and_keep_secrets(desk: Desk, stub: StubKube, running: Any, eventually: Any) -> None:
    logs.never_log("canary-4711-secret")
    await desk.tell(an_event(note="canary-4711-secret " + "ä" * 2000), running=running, eventually=eventually)
    (posted,) = stub.collections["events"].objects.values()
    assert posted["note"].startswith("[redacted] ä")
    assert MAX_NOTE - 3 <= len(posted["note"].encode()) <= MAX_NOTE


def test_the_longest_job_name_makes_a_valid_event_name() -> None:
    name = an_event(subject=Subject("x" * 253, "team", "u")).name
    assert len(name) <= 253
