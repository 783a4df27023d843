"""Who holds which places, rebuilt from committed plans by a process that begins to lead."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pytest

from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.gang_queue import GangQueue
from meshwright.jobs import Jobs
from meshwright.lookups import Lookups
from meshwright.placement.model import Refused
from meshwright.restoring import restore_reservation
from tests.controller.memory_api import MemoryApi
from tests.controller.placement.clusters import a_gang
from tests.controller.placement.clusters import a_role as a_role_request
from tests.controller.rendering.jobs import UID, a_role, frozen
from tests.controller.rendering.jobs import a_job as a_parsed_job

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NO_SERVER: Any = None


class Bench:
    """A job whose plan is committed and stored, and a queue that knows of nothing."""

    def __init__(self, stored: int = 2, **status: Any) -> None:
        plan, there = frozen(a_parsed_job(a_role(2))), frozen(a_parsed_job(a_role(stored)))
        self.api = MemoryApi()
        for manifest in (there.plan_config_map(), there.placement_config_map()):
            self.api.objects["configmaps", "team", manifest["metadata"]["name"]] = manifest
        low = {"metadata": {"name": "low"}, "value": -5}
        self.api.objects["priorityclasses", "", "low"] = low
        nodes = NodeCache(NO_SERVER)
        self.nodes = sorted(set(plan.nodes.values()))
        for name in self.nodes:
            conditions = [{"type": "Ready", "status": "True"}]
            about = {"allocatable": {"cpu": "8", "pods": "1"}, "conditions": conditions}
            nodes.reflectors[0]._put({"metadata": {"name": name, "uid": name}, "status": about})
        self.queue = GangQueue(PodCache(NO_SERVER), nodes)
        said = {"phase": "Running", "attempt": 1, "planned": 1, "launched": 1, "incarnation": 1}
        said |= {"planSHA256": plan.sha256, "admittedTime": "2026-01-01T00:00:00Z", **status}
        metadata = {"name": "demo", "namespace": "team", "uid": UID, "generation": 1, "resourceVersion": "1"}
        spec = {"roles": [a_role(2)], "queue": {"priorityClassName": "low"}}
        self.known = Jobs().put({"metadata": metadata, "spec": spec, "status": said})

    async def restore(self) -> None:
        world = SimpleNamespace(api=self.api, queue=self.queue, lookups=Lookups(cast(Any, self.api)), clock=lambda: NOW)
        await restore_reservation(cast(Any, world), cast(Any, self.known))

    def wanted_by(self, priority: int) -> bool:
        """Whether the gang must go for one that needs all nodes and has this priority."""
        urgent = a_gang("urgent", a_role_request(len(self.nodes)), priority=priority)
        assert isinstance(self.queue.ask(replace(urgent, preempts=True), NOW), Refused)
        return self.queue.must_yield(UID, NOW)


async def test_a_committed_plan_reserves_its_places() -> None:
    bench = Bench()
    await bench.restore()
    held = bench.queue.held_by(UID)
    assert held is not None
    assert len(held.nodes) == 2


@pytest.mark.parametrize("phase", ["Failed", "Succeeded"])
async def test_a_job_that_is_over_holds_nothing(phase: str) -> None:
    bench = Bench(phase=phase)
    await bench.restore()
    assert bench.queue.held_by(UID) is None


async def test_a_forged_plan_reserves_nothing() -> None:
    """It has the right name and is well-formed, but its hash is not the one that stands in the status."""
    bench = Bench(stored=9)
    await bench.restore()
    assert bench.queue.held_by(UID) is None


async def test_a_gang_keeps_its_rank_whoever_leads() -> None:
    bench = Bench()
    await bench.restore()
    assert not bench.wanted_by(-5)
    assert bench.wanted_by(-4)


async def test_a_gang_that_was_told_to_go_is_not_told_again() -> None:
    incident = {"attempt": 1, "openedAt": "2026-01-01T00:00:00Z", "trigger": "Preempted", "evidence": {}}
    bench = Bench(phase="Restarting", attempt=2, incident=incident)
    await bench.restore()
    assert bench.queue.held_by(UID) is not None
    assert not bench.wanted_by(9), "it is on its way"
