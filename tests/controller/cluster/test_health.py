from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import pytest

from meshwright.cluster.health import Health, LagMeter, Limits, Unhealthy

LIMITS = Limits(watch=180, lease=60, lag=10, job=600)


@dataclass
class Watch:
    name: str = "pods"
    old: float = 0.0
    still: float = 0.0

    def age(self) -> float:
        return self.old

    def stuck(self) -> float:
        return self.still


def health(watch: Watch | None = None, *, lease: float = 0.0, job: float = 0.0, lag: float = 0.0) -> Health:
    return Health(
        watches=[watch or Watch(), Watch("nodes")],
        lease_stuck=lambda: lease,
        oldest_job=lambda: job,
        lag=lambda: lag,
        limits=LIMITS,
    )


def test_all_is_well() -> None:
    well = health(Watch(old=30, still=30), lease=2, job=1, lag=0.01)
    assert well.watches() == {"pods": 30, "nodes": 0}
    assert (well.lease(), well.jobs(), well.loop()) == (2, 1, 0)


def test_a_watch_that_neither_hears_nor_tries_anything_is_dead() -> None:
    with pytest.raises(Unhealthy, match="pods"):
        health(Watch(old=181, still=181)).watches()


def test_an_api_server_that_is_down_is_no_reason_to_restart() -> None:
    down = health(Watch(old=3600, still=5), lease=1, job=3600)
    assert down.watches()["pods"] == 3600
    assert down.jobs() == 3600
    assert down.lease() == 1


def test_a_lease_that_is_not_even_tried_for() -> None:
    with pytest.raises(Unhealthy, match="lease"):
        health(lease=61).lease()


def test_a_job_that_nobody_gets_to_although_the_server_answers() -> None:
    with pytest.raises(Unhealthy, match="601"):
        health(job=601).jobs()


def test_a_blocked_event_loop() -> None:
    with pytest.raises(Unhealthy, match="blocked"):
        health(lag=11).loop()


async def test_lag_is_measured(running: Any, eventually: Any) -> None:
    meter = LagMeter(interval=0.01)
    async with running(meter.run()):
        await eventually(lambda: meter.lag > 0)
        time.sleep(0.2)  # A handler that blocks the loop.
        await eventually(lambda: meter.lag > 0.1)
        await eventually(lambda: meter.lag < 0.1)
