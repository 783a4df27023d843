"""Sinks: what they write, and that none of them can stop the training."""

from __future__ import annotations

import io
import json
import socket
import urllib.request
from pathlib import Path
from unittest.mock import ANY

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from meshwright_trainer.session import METRICS_ADDRESS_VARIABLE, METRICS_PORT_VARIABLE, metrics_of
from meshwright_trainer.sinks.agent import AgentSocket
from meshwright_trainer.sinks.base import Record
from meshwright_trainer.sinks.json_lines import JsonLines
from meshwright_trainer.sinks.prometheus import Prometheus

STEP = Record("step", 5, {"loss": 2.5, "tokens_per_second": 10.0, "seconds": {"data": 0.5, "step": 1.5}})


def test_json_lines_are_one_object_each_and_stay_json_when_the_loss_is_none() -> None:
    stream = io.StringIO()
    sink = JsonLines(stream)
    sink.write(STEP)
    sink.write(Record("step", 6, {"loss": float("nan")}))
    first, second = (json.loads(line, parse_constant=_refuse) for line in stream.getvalue().splitlines())
    assert first == {"event": "step", "step": 5, **STEP.values}
    assert second["loss"] == "nan"


def _refuse(constant: str) -> object:
    raise AssertionError(f"{constant} is not JSON")


def test_tensor_board_reads_what_was_written_and_not_what_is_trained_again(tmp_path: Path) -> None:
    from meshwright_trainer.sinks.tensor_board import TensorBoard

    first = TensorBoard(tmp_path, resumed_from_step=0)
    for step in (5, 10):
        first.write(Record("step", step, {"loss": float(step)}))
    first.close()
    second = TensorBoard(tmp_path, resumed_from_step=5)
    second.write(Record("step", 10, {"loss": 100.0}))
    second.close()
    events = EventAccumulator(str(tmp_path)).Reload().Scalars("step/loss")
    assert [(event.step, event.value) for event in events] == [(5, 5.0), (10, 100.0)]


def test_prometheus_has_the_last_figures_and_sums_of_seconds() -> None:
    sink = Prometheus(port=0)
    sink.write(STEP)
    sink.write(Record("step", 10, {"loss": 2.0, "seconds": {"data": 0.25}}))
    sink.write(Record("evaluation", 10, {"loss": 9.0}))
    value = sink.registry.get_sample_value
    assert value("meshwright_trainer_loss") == 2.0
    assert value("meshwright_trainer_step") == 10
    assert value("meshwright_trainer_phase_seconds_total", {"phase": "data"}) == 0.75
    sink.close()


def test_the_agent_hears_of_steps_and_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "agent"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(path))
        sink = AgentSocket(path, steps=20)
        sink.write(STEP)
        sink.write(Record("checkpoint", 5))
        step, checkpoint = (json.loads(agent.recv(65536)) for _ in range(2))
        sink.close()
    assert step == {"step": 5, "steps": 20, "phase": "step", "loss": 2.5, "tokensPerSecond": 10.0}
    assert checkpoint == {"checkpoint": {"step": 5, "time": ANY}}


def test_an_agent_that_is_gone_or_does_not_read_stops_nobody(tmp_path: Path) -> None:
    sink = AgentSocket(tmp_path / "nobody", steps=1)
    sink.write(STEP)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as agent:
        agent.bind(str(tmp_path / "nobody"))
        for _ in range(10_000):
            sink.write(STEP)
    sink.close()


def test_metrics_are_served_and_a_port_that_is_taken_costs_no_training(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        environment = {METRICS_PORT_VARIABLE: str(probe.getsockname()[1]), METRICS_ADDRESS_VARIABLE: "127.0.0.1"}
        assert metrics_of(environment) == []
    assert "no metrics" in capsys.readouterr().err
    [sink] = metrics_of(environment)
    sink.write(STEP)
    with urllib.request.urlopen(f"http://127.0.0.1:{environment[METRICS_PORT_VARIABLE]}/metrics", timeout=5) as answer:
        assert b"meshwright_trainer_loss 2.5" in answer.read()
    sink.close()
    assert metrics_of({}) == []
