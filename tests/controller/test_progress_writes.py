"""Passes over jobs whose agents speak: how often a status is written, against which version, and what is in it."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from meshwright.cluster.api import ApiServer
from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.cluster.errors import Conflict
from meshwright.cluster.resources import Resource
from meshwright.gang_queue import GangQueue
from meshwright.jobs import Jobs
from meshwright.lifecycle.model import Identity, Pod, PodState
from meshwright.lookups import Lookups
from meshwright.pace import Pace
from meshwright.progress import Progress, ProgressBoard
from meshwright.reconcile import Surroundings, reconcile
from meshwright.settings import Settings

START = datetime(2026, 1, 1, tzinfo=UTC)
Json = dict[str, Any]


@dataclass
class World:
    """One job that runs in two pods, its API server, and a clock."""

    count: int = 1
    now: datetime = START
    seconds: float = 0.0
    writes: list[tuple[str, Json]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stored = {f"job-{i}": self._job(f"job-{i}") for i in range(self.count)}
        self.jobs = Jobs()
        for job in self.stored.values():
            self.jobs.put(copy.deepcopy(job))
        self.board = ProgressBoard()
        self.surroundings = Surroundings(
            cast(ApiServer, self),
            self.jobs,
            cast(PodCache, self),
            cast(NodeCache, self),
            cast(GangQueue, self),
            cast(Lookups, self),
            Settings(progress_seconds=30),
            self,
            self.board,
            pace=Pace(10, lambda: self.seconds),
            clock=lambda: self.now,
        )

    def _job(self, name: str) -> Json:
        container = {"name": "trainer", "image": "x", "command": ["python", "train.py"]}
        role = {"name": "worker", "replicas": 2, "template": {"spec": {"containers": [container]}}}
        status: Json = {
            "phase": "Running",
            "attempt": 1,
            "planned": 1,
            "launched": 1,
            "incarnation": 1,
            "planSHA256": "p",
        }
        status |= {"observedGeneration": 1, "startTime": "2026-01-01T00:00:00Z", "admittedTime": "2026-01-01T00:00:00Z"}
        accepted = {"type": "Accepted", "status": "True", "reason": "Valid", "observedGeneration": 1}
        status["conditions"] = [accepted | {"lastTransitionTime": "2026-01-01T00:00:00Z"}]
        metadata = {"name": name, "namespace": "team", "uid": name, "generation": 1, "resourceVersion": "1"}
        return {"metadata": metadata, "spec": {"roles": [role], "agent": "Inject"}, "status": status}

    # What passes ask of caches, queue and recorder.
    def gang(self, uid: str) -> tuple[Pod, ...]:
        return tuple(
            Pod(f"{uid}-{i}", f"{uid}-{i}", Identity("worker", i, 1), PodState.RUNNING, f"node-{i}", START)
            for i in range(2)
        )

    def vanished(self, uid: str) -> frozenset[Identity]:
        return frozenset()

    def lost(self, nodes: set[str], now: datetime, seconds: float) -> frozenset[str]:
        return frozenset()

    def must_yield(self, uid: str, now: datetime) -> bool:
        return False

    def wrote(self, *_: Any) -> None:
        pass

    def decided(self, *_: Any) -> None:
        pass

    def passed(self, *_: Any) -> None:
        pass

    # The API server.
    async def patch_status(
        self, resource: Resource, namespace: str, name: str, patch: Mapping[str, Any], *, resource_version: str
    ) -> Json:
        job = self.stored[name]
        if resource_version != job["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "the object has been modified")
        self.writes.append((name, dict(patch)))
        job["status"] |= patch
        job["metadata"]["resourceVersion"] = str(int(resource_version) + 1)
        return copy.deepcopy(job)

    async def get(self, resource: Resource, namespace: str, name: str) -> Json:
        return copy.deepcopy(self.stored[name])

    async def step(self, seconds: float, step: int | None = None) -> None:
        """Time passes, agents speak, and every job has a pass."""
        self.now += timedelta(seconds=seconds)
        self.seconds += seconds
        for uid in self.stored:
            if step is not None:
                self.board.report(uid, Progress(attempt=1, incarnation=1, step=step, loss=1.0))
            await reconcile(self.surroundings, uid)


async def test_a_job_that_reports_every_second_is_written_twice_a_minute() -> None:
    world = World()
    for second in range(300):
        await world.step(1, step=second)
    steps = [patch["progress"]["step"] for _, patch in world.writes]
    assert len(steps) in (9, 10)
    assert steps == sorted(steps)


async def test_a_quiet_job_costs_no_write() -> None:
    world = World()
    for _ in range(100):
        await world.step(60)
    assert world.writes == []
    await world.step(60, step=7)
    for _ in range(100):
        await world.step(60, step=7)
    assert len(world.writes) == 1


async def test_many_jobs_are_written_ten_times_a_second_in_all() -> None:
    world = World(count=60)
    await world.step(0)
    await world.step(31, step=1)
    at_once = len(world.writes)
    assert at_once <= 10
    for _ in range(8):
        await world.step(0.25, step=1)
    assert len(world.writes) - at_once == pytest.approx(20, abs=5)
    assert len({name for name, _ in world.writes}) == len(world.writes), "nobody is served twice before all the others"


async def test_a_conflict_is_decided_again_from_what_is_there_now() -> None:
    world = World()
    await world.step(0)
    world.stored["job-0"]["metadata"]["resourceVersion"] = "5"
    world.stored["job-0"]["status"]["restarts"] = 3
    await world.step(31, step=8)
    assert [patch["progress"]["step"] for _, patch in world.writes] == [8]
    assert world.stored["job-0"]["status"]["restarts"] == 3
