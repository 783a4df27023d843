from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from meshwright.progress import Progress, ProgressBoard

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOW = Progress(attempt=3, incarnation=2, step=50, steps=100, loss=2.5, checkpoint_step=40, checkpoint_time=NOON)


@pytest.fixture
def board() -> ProgressBoard:
    made = ProgressBoard()
    made.report("job", NOW)
    return made


@pytest.mark.parametrize(
    "late",
    [
        replace(NOW, attempt=2, incarnation=9, step=99),
        replace(NOW, incarnation=1, step=99),
        replace(NOW, step=49),
        replace(NOW, step=None),
    ],
    ids=["an older attempt", "older pods", "an overtaken report", "a report without a step"],
)
def test_what_comes_late_changes_nothing(board: ProgressBoard, late: Progress) -> None:
    assert not board.report("job", late)
    assert board.latest("job") == NOW


@pytest.mark.parametrize(
    "news",
    [
        replace(NOW, step=51),
        replace(NOW, loss=2.4),
        replace(NOW, attempt=4, incarnation=3, step=None, checkpoint_step=None, checkpoint_time=None),
        replace(NOW, attempt=4, step=41),
    ],
    ids=["a step", "a figure", "the next attempt starts", "the next attempt begins earlier"],
)
def test_news_is_kept_and_told(board: ProgressBoard, news: Progress) -> None:
    told: list[str] = []
    board.on_report = told.append
    assert board.report("job", news)
    assert board.latest("job") == news
    assert told == ["job"]


def test_the_same_again_is_no_news(board: ProgressBoard) -> None:
    board.on_report = lambda uid: pytest.fail("nothing is new")
    assert not board.report("job", NOW)


def test_a_checkpoint_stays_known(board: ProgressBoard) -> None:
    board.report("job", replace(NOW, step=60, checkpoint_step=None, checkpoint_time=None))
    assert board.latest("job") == replace(NOW, step=60)
    board.report("job", replace(NOW, step=60, checkpoint_step=60))
    board.report("job", replace(NOW, step=61, checkpoint_step=40))
    found = board.latest("job")
    assert found is not None
    assert (found.step, found.checkpoint_step) == (61, 60)


def test_jobs_are_told_apart_and_forgotten(board: ProgressBoard) -> None:
    board.report("other", replace(NOW, step=1))
    board.forget("job")
    assert board.latest("job") is None
    assert board.latest("other") == replace(NOW, step=1)
    board.clear()
    assert board.latest("other") is None
