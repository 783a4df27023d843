from __future__ import annotations

import asyncio
import copy
import socket
import time
from typing import Any

import pytest

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import AlreadyExists, Conflict, Forbidden, NotFound, NotLeading, Unreachable
from meshwright.cluster.lease import Leadership, LeaseTimes, boottime
from meshwright.cluster.resources import LEASES, PODS
from tests.controller.cluster.builders import a_pod
from tests.controller.cluster.stub_kube import StubKube

TIMES = LeaseTimes(duration=15, renew_deadline=10, retry_period=2)


class World:
    """One lease on an API server, a clock for everybody, and as many candidates as a test wants."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.lease: Json | None = None
        self.writes: list[str] = []
        self.down = False
        self.may_create = True
        self.lose_answers = False

    def candidate(self, name: str, **options: Any) -> Leadership:
        return Leadership(
            _Client(self),  # type: ignore[arg-type]
            namespace="meshwright",
            name="operator",
            identity=name,
            times=TIMES,
            clock=lambda: self.now,
            **options,
        )

    async def attempts(self, *candidates: Leadership, seconds: float = 0, step: float = 2) -> None:
        """Everybody tries every `step` seconds for `seconds`, at least once."""
        end = self.now + seconds
        while True:
            for candidate in candidates:
                await candidate.attempt()
            if self.now + step > end:
                return
            self.now += step

    @property
    def holder(self) -> str:
        return str(self.lease["spec"]["holderIdentity"]) if self.lease else ""


class _Client:
    """What one candidate sees of the world."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def get(self, resource: object, namespace: str, name: str, **_: Any) -> Json:
        self._reach()
        if self.world.lease is None:
            raise NotFound(404)
        return copy.deepcopy(self.world.lease)

    async def create(self, resource: object, namespace: str, body: Json, *, fenced: bool, urgent: bool) -> Json:
        self._reach()
        assert not fenced, "the lease itself must not be fenced"
        if not self.world.may_create:
            raise Forbidden(403, message="leases is forbidden")
        if self.world.lease is not None:
            raise AlreadyExists(409)
        return self._store(body, "1")

    async def replace(
        self, resource: object, namespace: str, name: str, body: Json, *, fenced: bool, urgent: bool
    ) -> Json:
        self._reach()
        assert not fenced
        if self.world.lease is None:
            raise NotFound(404)
        version = self.world.lease["metadata"]["resourceVersion"]
        if body["metadata"]["resourceVersion"] != version:
            raise Conflict(409)
        return self._store(body, str(int(version) + 1))

    def _store(self, body: Json, version: str) -> Json:
        body = copy.deepcopy(body)
        body["metadata"]["resourceVersion"] = version
        # A writer's renewTime is a wall clock; here it only has to differ, and must not matter otherwise.
        body["spec"]["renewTime"] = f"t{version}"
        self.world.lease = body
        self.world.writes.append(body["spec"]["holderIdentity"])
        if self.world.lose_answers:
            raise Unreachable(0, message="the answer was lost")
        return copy.deepcopy(body)

    def _reach(self) -> None:
        if self.world.down:
            raise Unreachable(0)


@pytest.fixture
def world() -> World:
    return World()


async def test_the_first_takes_it_and_the_second_waits(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    await world.attempts(a, b, seconds=120)

    assert a.held.is_set()
    assert not a.lost.is_set()
    assert b.lost.is_set()
    assert b.holder == "a"
    a.require()
    with pytest.raises(NotLeading, match="held by a"):
        b.require()
    assert set(world.writes) == {"a"}


async def test_a_missing_lease_is_made_only_by_one(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    await asyncio.gather(a.attempt(), b.attempt())
    assert [a.held.is_set(), b.held.is_set()].count(True) == 1


async def test_a_missing_lease_that_may_not_be_made_is_said_and_waited_for(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.may_create = False
    a = world.candidate("a")
    await a.attempt()
    assert "meshwright/operator" in caplog.text
    assert "forbidden" in caplog.text

    world.may_create = True  # As if the chart's Lease had arrived.
    await a.attempt()
    assert a.held.is_set()


async def test_takeover_comes_after_the_duration_and_not_before(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    await world.attempts(a, b)  # Killed here: never heard of again.
    await b.attempt()
    world.now += 14.9
    await b.attempt()
    assert not b.held.is_set()
    world.now += 0.2
    await b.attempt()
    assert b.held.is_set()
    assert world.lease is not None
    assert world.lease["spec"]["leaseTransitions"] == 1


async def test_only_what_was_observed_counts_not_the_writers_clock(world: World) -> None:
    """A record with a time of long ago may belong to a healthy leader whose clock is wrong."""
    a, b = world.candidate("a"), world.candidate("b")
    await a.attempt()
    world.now += 1000  # b only begins to look now, at a record that is 1000 s old and may be renewed at any moment.
    await b.attempt()
    assert not b.held.is_set()
    world.now += 10
    await b.attempt()
    assert not b.held.is_set()


async def test_a_paused_leader_knows_at_once_that_it_may_not_write(world: World) -> None:
    """SIGSTOP for a minute, then SIGCONT: the first thing it does may be a write."""
    a, b = world.candidate("a"), world.candidate("b")
    await world.attempts(a, b)
    await world.attempts(b, seconds=60)
    assert b.held.is_set()

    assert a.held.is_set(), "it has not run since, so it cannot know yet"
    with pytest.raises(NotLeading, match="last renewed 60"):
        a.require()
    await a.attempt()
    assert a.lost.is_set()
    assert a.holder == "b"
    assert world.holder == "b"


async def test_two_never_lead_at_once(world: World) -> None:
    """Whoever writes before the renew deadline does so before anybody else may have taken over."""
    a, b = world.candidate("a"), world.candidate("b")
    await world.attempts(a, b)
    for _ in range(200):
        world.now += 0.1
        await b.attempt()
        try:
            a.require()
        except NotLeading:
            continue
        assert not b.held.is_set()


async def test_a_leader_that_cannot_renew_stops_at_the_deadline(world: World) -> None:
    told: list[bool] = []
    a = world.candidate("a", on_change=told.append)
    await a.attempt()
    world.down = True
    await world.attempts(a, seconds=8)
    a.require()
    assert told == [True]

    world.now += 2.1
    with pytest.raises(NotLeading):
        a.require()
    await a.attempt()
    assert told == [True, False]

    world.down = False
    await a.attempt()
    assert told == [True, False, True]
    assert a.term == 2
    a.require()


async def test_a_renewal_whose_answer_is_lost_is_found_again(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    await world.attempts(a, b)
    world.now += 2
    world.lose_answers = True
    await a.attempt()
    world.lose_answers = False
    world.now += 2
    await a.attempt()

    a.require()
    assert a.term == 1
    assert world.writes == ["a", "a", "a"]


async def test_a_renewal_counts_from_before_it_was_sent(world: World) -> None:
    a = world.candidate("a")
    await a.attempt()
    client = a._api
    replace = client.replace

    async def slow(*args: Any, **kwargs: Any) -> Json:
        answer = await replace(*args, **kwargs)
        world.now += 9  # The server renewed at once, and others count from then; the answer took its time.
        return answer

    client.replace = slow  # type: ignore[method-assign]
    await a.attempt()
    world.now += 1.5
    with pytest.raises(NotLeading):
        a.require()


async def test_a_term_ends_when_somebody_led_in_between(world: World) -> None:
    """b took over and died while a was paused; a must not go on as if nothing had happened."""
    a, b = world.candidate("a"), world.candidate("b")
    await world.attempts(a, b)
    await world.attempts(b, seconds=20)
    assert world.holder == "b"
    world.now += 100
    await a.attempt()
    assert a.lost.is_set()
    world.now += 16
    await a.attempt()
    assert a.held.is_set()
    assert a.term == 2


async def test_a_lease_that_was_given_up_is_taken_at_once(world: World) -> None:
    a, b = world.candidate("a"), world.candidate("b")
    await world.attempts(a, b)
    await a._release()
    await b.attempt()
    assert a.lost.is_set()
    assert b.held.is_set()


async def test_what_others_keep_in_the_lease_stays(world: World) -> None:
    world.lease = {
        "metadata": {"name": "operator", "resourceVersion": "7", "labels": {"app": "meshwright"}},
        "spec": {"strategy": "OldestEmulationVersion"},
    }
    a = world.candidate("a")
    await world.attempts(a, seconds=4)
    assert world.lease["metadata"]["labels"] == {"app": "meshwright"}
    assert world.lease["spec"]["strategy"] == "OldestEmulationVersion"


async def test_everybody_learns_where_the_holder_is_reached(world: World) -> None:
    a, b = world.candidate("a", address="http://a:8082"), world.candidate("b", address="http://b:8082")
    await world.attempts(a, b)
    assert a.holder_address == b.holder_address == "http://a:8082"
    await world.attempts(b, seconds=20)
    assert b.held.is_set()
    await world.attempts(a)
    assert a.holder_address == "http://b:8082"
    await b._release()
    await a._try()
    assert a.holder_address == "http://a:8082", "and not the last one's"


async def test_how_long_nothing_was_tried(world: World) -> None:
    a = world.candidate("a")
    world.now += 30
    assert a.stuck() == 30
    world.down = True
    await a.attempt()
    assert a.stuck() == 0, "a failed attempt is an attempt"


@pytest.mark.parametrize("times", [(10, 10, 2), (15, 2, 10), (15, 10, 0)])
def test_times_that_cannot_work_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(ValueError, match="lease times must grow"):
        LeaseTimes(*times)


def test_the_clock_counts_the_time_asleep() -> None:
    assert abs(boottime() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1


class TestRunning:
    """With a server, and in real time."""

    TIMES = LeaseTimes(duration=1.0, renew_deadline=0.6, retry_period=0.05)

    def candidate(self, api: ApiServer, name: str, **options: Any) -> Leadership:
        return Leadership(api, namespace="default", name="operator", identity=name, times=self.TIMES, **options)

    async def test_it_gives_the_lease_up_at_the_end(
        self, api: ApiServer, stub: StubKube, running: Any, eventually: Any
    ) -> None:
        a, b = self.candidate(api, "a"), self.candidate(api, "b")
        async with running(a.run()):
            await eventually(a.held.is_set)
        lease = stub.get("leases", "operator", "default")
        assert lease is not None
        assert lease["spec"]["holderIdentity"] == ""
        async with running(b.run()):
            await eventually(b.held.is_set, within=0.9)

    async def test_it_fences_the_writes_of_the_client(
        self, api: ApiServer, stub: StubKube, running: Any, eventually: Any
    ) -> None:
        a = self.candidate(api, "a")
        api.before_write = a.require
        with pytest.raises(NotLeading):
            await api.create(PODS, "team", a_pod())
        async with running(a.run()):
            await eventually(a.held.is_set)
            await api.create(PODS, "team", a_pod())
        with pytest.raises(NotLeading):
            await api.create(PODS, "team", a_pod("second"))
        assert [seen.path for seen in stub.requests("POST", "/pods")] == ["/api/v1/namespaces/team/pods"]

    async def test_a_frozen_server_does_not_hide_the_loss(
        self, api: ApiServer, stub: StubKube, running: Any, eventually: Any
    ) -> None:
        """The renewal hangs, and must not hang beyond the deadline."""
        a = self.candidate(api, "a")
        async with running(a.run()):
            await eventually(a.held.is_set)
            with socket.create_server(("127.0.0.1", 0)) as frozen:  # Takes connections, and never answers.
                api.credentials.configuration.host = f"http://127.0.0.1:{frozen.getsockname()[1]}"
                await eventually(a.lost.is_set, within=3)

    async def test_it_survives_a_fault_of_its_own(self, running: Any, eventually: Any) -> None:
        class Broken:
            async def get(self, *_: Any, **__: Any) -> Json:
                raise RuntimeError("a bug")

        a = self.candidate(Broken(), "a")  # type: ignore[arg-type]
        async with running(a.run()) as tasks:
            await eventually(lambda: a.stuck() < 1)
            assert not tasks[0].done()

    async def test_the_path_is_the_lease_by_name(self, api: ApiServer, stub: StubKube) -> None:
        a = self.candidate(api, "a")
        await a.attempt()
        await a.attempt()
        assert {seen.path for seen in stub.seen} == {
            LEASES.path("default", "operator"),
            LEASES.path("default"),
        }
