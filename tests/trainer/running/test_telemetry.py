"""Figures, cadence and state: closed forms in virtual time."""

from __future__ import annotations

import os
import signal

import pytest

from meshwright_api.trainer import Resume
from meshwright_api.trainer_config import CheckpointConfig, EvaluationConfig
from meshwright_trainer.cadence import Cadence
from meshwright_trainer.engines.base import StepResult
from meshwright_trainer.state import TrainState
from meshwright_trainer.stopping import StopRequest
from meshwright_trainer.telemetry import Meter


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_speed_utilisation_and_seconds_are_those_since_the_last_reading() -> None:
    clock = Clock()
    meter = Meter(world_size=2, flops_per_token=10.0, peak=1000.0, clock=clock)
    for _ in range(4):
        with meter.phase("data"):
            clock.now += 0.5
        with meter.phase("step"):
            clock.now += 1.5
        meter.count(400.0)
    assert meter.read(steps_left=10) == {
        "tokens_per_second": 200.0,
        "eta_seconds": 20,
        "seconds": {"data": 2.0, "step": 6.0},
        "mfu": 1.0,
    }
    clock.now += 1.0
    meter.count(50.0)
    meter.count(50.0)
    meter.bytes_per_step = {"data": 300}
    figures = meter.read(steps_left=1)
    assert (figures["tokens_per_second"], figures["bytes"]) == (100.0, {"data": 600})


def test_checkpoints_are_due_by_steps_or_by_the_clock_once() -> None:
    clock = Clock()
    kept = CheckpointConfig(every_steps=4, every_seconds=10, keep=1, resume=Resume.AUTO)
    cadence = Cadence(kept, EvaluationConfig(every_steps=None, batches=1), clock=clock)
    assert [step for step in range(1, 10) if cadence.saves(step)] == [4, 8]
    assert not any(cadence.evaluates(step) for step in range(1, 10))
    asked = []
    for _ in range(25):
        clock.now += 1.0
        asked.append(cadence.clock_says())
    assert [second for second, due in enumerate(asked, start=1) if due] == [10, 20]


def test_a_state_counts_skipped_steps_only_in_a_row() -> None:
    state = TrainState()
    for skipped in (True, True, False, True):
        state = state.after(StepResult(loss=1.0, weight=8.0, norm=1.0, skipped=skipped), samples=4)
    assert (state.step, state.samples, state.tokens, state.skipped_in_a_row) == (4, 16, 32.0, 1)


def test_sigterm_is_remembered_and_the_handlers_come_back() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with StopRequest() as stop:
        assert not stop.requested
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGTERM) is before
