"""The demo's verdict: with each claim broken once, it says which, and does not pass."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from demo.verdict import Evaluation, Facts, last_line, problems
from meshwright_api.status import Cause, Culprit, Incident, Phase

NOW = datetime(2026, 1, 31, tzinfo=UTC)


def an_incident(uid: str = "killed") -> Incident:
    return Incident(
        attempt=1,
        trigger=Cause.EXIT_CODE,
        cause=Cause.EXIT_CODE,
        charged=True,
        action="Restart",
        culprit=Culprit(pod="text-0", pod_uid=uid, exit_code=137),
        opened_at=NOW,
        judged_at=NOW,
    )


GOOD = Facts(
    phase=Phase.SUCCEEDED,
    attempts=2,
    incidents=(an_incident(),),
    killed_uid="killed",
    last_checkpoint_before_kill=40,
    resumed_from_step=40,
    evaluation=Evaluation(step=160, heldout_loss=1.9, bigram_entropy=2.45, unigram_entropy=3.16),
)
assert GOOD.evaluation


def test_all_that_is_claimed_was_seen() -> None:
    assert problems(GOOD) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"phase": Phase.FAILED}, "the job is Failed, not Succeeded"),
        ({"phase": None}, "the job is None, not Succeeded"),
        ({"evaluation": replace(GOOD.evaluation, heldout_loss=2.46)}, "held-out loss 2.460 is not below 2.450"),
        ({"evaluation": replace(GOOD.evaluation, heldout_loss=2.45)}, "held-out loss 2.450 is not below 2.450"),
        ({"evaluation": replace(GOOD.evaluation, heldout_loss=float("nan"))}, "held-out loss nan is not below 2.450"),
        ({"evaluation": None}, "the final checkpoint was not evaluated"),
        ({"undisturbed_sha256": "other"}, "the final weights are not those of the same job undisturbed"),
        ({"attempts": 1}, "there were 1 attempts"),
        ({"attempts": 3}, "there were 3 attempts"),
        ({"incidents": (an_incident(), an_incident())}, "one kill made 2 incidents"),
        ({"incidents": (an_incident("its peer"),)}, "no incident names the killed pod killed"),
        ({"resumed_from_step": 20}, "went on from step 20, the last checkpoint before the kill was 40"),
        ({"resumed_from_step": None}, "went on from step None"),
        ({"last_checkpoint_before_kill": 60}, "the last checkpoint before the kill was 60"),
    ],
)
def test_each_claim_can_break(change: dict[str, Any], says: str) -> None:
    [problem] = problems(replace(GOOD, **change))
    assert says in problem


def test_without_a_kill_nothing_is_proven() -> None:
    calm = replace(GOOD, attempts=1, incidents=(), killed_uid="", resumed_from_step=None)
    assert len(problems(replace(calm, last_checkpoint_before_kill=None))) == 4


def test_no_culprit_is_not_the_pod_that_was_not_killed() -> None:
    found = problems(replace(GOOD, killed_uid="", incidents=(an_incident(""),)))
    assert found == ["no incident names the killed pod (none was killed)"]


def test_the_last_line_has_the_figures() -> None:
    assert json.loads(last_line(GOOD)) == {
        "heldout_loss": 1.9,
        "bigram_entropy": 2.45,
        "unigram_entropy": 3.16,
        "attempts": 2,
        "steps": 160,
        "resumed_from_step": 40,
        "last_checkpoint_before_kill": 40,
        "sha256": None,
        "undisturbed_sha256": None,
    }


def test_the_last_line_is_whole_when_the_demo_was_not() -> None:
    line = json.loads(last_line(replace(GOOD, evaluation=None, resumed_from_step=None)))
    assert line.keys() == json.loads(last_line(GOOD)).keys()
    assert line["heldout_loss"] is None
