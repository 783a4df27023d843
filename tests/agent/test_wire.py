from __future__ import annotations

import json
import math
from typing import Any

import pytest

from meshwright_agent.errors import Malformed
from meshwright_agent.wire import MAX_PROGRESS, Answer, Checkpoint, Progress, Report, dump, parse_object

FULL: dict[str, Any] = {
    "step": 120,
    "steps": 20000,
    "loss": 2.5,
    "tokensPerSecond": 1.5e6,
    "mfu": 0.41,
    "etaSeconds": 3600,
    "checkpoint": {"step": 100, "time": 1796000000.5},
    "phase": "training",
}
REPORT: dict[str, Any] = {"attempt": 3, "incarnation": 2, "role": "worker", "index": 0, "pod": "p", "heard": 1}


def test_what_is_said_is_read_and_sent_on() -> None:
    assert Progress.read(FULL).to_json() == FULL
    assert Progress.read({}).to_json() == {}
    assert Progress.read({"step": 0, "colour": "red"}) == Progress(step=0)


@pytest.mark.parametrize("loss", [math.inf, -math.inf, -1.0])
def test_a_loss_may_be_anything(loss: float) -> None:
    assert Progress.read(json.loads(dump({"loss": loss}))).loss == loss


def test_a_loss_that_is_no_number_arrives_as_such() -> None:
    said = Progress.read(json.loads(dump({"loss": math.nan}))).loss
    assert said is not None
    assert math.isnan(said)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("step", -1),
        ("step", 1.5),
        ("step", True),
        ("step", "12"),
        ("step", 2**53),
        ("loss", "nan"),
        ("loss", 10**400),
        ("mfu", math.nan),
        ("tokensPerSecond", -1),
        ("etaSeconds", math.inf),
        ("phase", "x" * 65),
        ("phase", "two\nlines"),
        ("phase", 3),
        ("checkpoint", 100),
        ("checkpoint", {"time": 1}),
        ("checkpoint", {"step": 1}),
        ("checkpoint", {"step": 1, "time": "yesterday"}),
        ("checkpoint", {"step": 1, "time": 1e15}),
    ],
)
def test_a_known_field_of_the_wrong_kind_is_named(field: str, value: object) -> None:
    with pytest.raises(Malformed, match=field):
        Progress.read({**FULL, field: value})


@pytest.mark.parametrize(
    "time", ["2026-11-29T20:00:00Z", "2026-11-29T21:00:00+01:00", "2026-11-29T20:00:00", 1795982400, 1795982400.0]
)
def test_times_in_every_usual_form(time: object) -> None:
    assert Progress.read({"checkpoint": {"step": 1, "time": time}}).checkpoint == Checkpoint(1, 1795982400.0)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 5000])
def test_what_is_no_object_is_refused(text: bytes) -> None:
    with pytest.raises(Malformed):
        parse_object(text, MAX_PROGRESS)


def test_size_is_bounded() -> None:
    with pytest.raises(Malformed, match="8192"):
        parse_object(b" " * (MAX_PROGRESS + 1), MAX_PROGRESS)


def test_later_words_win_and_silence_keeps_what_was_said() -> None:
    older = Progress(step=10, loss=3.0, checkpoint=Checkpoint(5, 1.0))
    assert Progress(step=11).over(older) == Progress(step=11, loss=3.0, checkpoint=Checkpoint(5, 1.0))


def test_reports_and_answers_arrive_as_they_were_sent() -> None:
    report = Report(3, 2, "worker", 1, "gpt-worker-1-2", 4, 10, 12, Progress.read(FULL))
    assert Report.parse(dump(report.to_json())) == report
    answer = Answer(3, "ab" * 32, "10.0.0.7", "cd" * 32, 10.0)
    assert Answer.parse(dump(answer.to_json())) == answer
    assert Answer.parse(b'{"attempt": 1, "rank0": null}') == Answer(1)


@pytest.mark.parametrize("field", list(REPORT))
def test_a_report_without_a_field_names_it(field: str) -> None:
    with pytest.raises(Malformed, match=field):
        Report.parse(dump({k: v for k, v in REPORT.items() if k != field}))


def test_a_key_is_hexadecimal() -> None:
    with pytest.raises(Malformed, match="key"):
        Answer.parse(b'{"attempt": 1, "key": "not hex"}')
