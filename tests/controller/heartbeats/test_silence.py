"""Who is called silent, as a table. The leader's time-out is 120 s and now is 1000."""

from __future__ import annotations

import pytest

from meshwright.heartbeats.silence import Heard, Verdict, judge

NOW, TIMEOUT = 1000.0, 120.0


@pytest.mark.parametrize(
    ("case", "heard", "listening_since", "spoke_before", "verdict"),
    [
        ("nobody has ever spoken", None, 0.0, False, Verdict.NOT_JUDGED),
        ("spoke just now", Heard(3, 500.0, 999.0), 0.0, False, Verdict.HEARD),
        ("spoke at the very edge", Heard(3, 500.0, 880.0), 0.0, False, Verdict.HEARD),
        ("spoke too long ago", Heard(3, 500.0, 879.0), 0.0, False, Verdict.SILENT),
        ("spoke once, too long ago", Heard(3, 500.0, 500.0), 0.0, False, Verdict.SILENT),
        ("only the attempt before spoke", Heard(2, 500.0, 999.0), 0.0, False, Verdict.NOT_JUDGED),
        ("a new leader, who has heard nothing yet", None, 950.0, True, Verdict.NOT_JUDGED),
        ("a leader who has listened for a whole time-out", None, 879.0, True, Verdict.SILENT),
        ("heard by this leader, who listens anew since", Heard(3, 500.0, 700.0), 950.0, False, Verdict.HEARD),
    ],
)
def test_verdicts(case: str, heard: Heard | None, listening_since: float, spoke_before: bool, verdict: Verdict) -> None:
    found = judge(
        heard,
        attempt=3,
        now=NOW,
        listening_since=listening_since,
        timeout=TIMEOUT,
        spoke_before=spoke_before,
    )
    assert found is verdict, case


def test_words_of_an_older_attempt_are_no_sign_of_life() -> None:
    heard = Heard(3, 10.0, 20.0)
    assert heard.again(3, 30.0) == Heard(3, 10.0, 30.0)
    assert heard.again(2, 30.0) == heard
    assert heard.again(4, 30.0) == Heard(4, 30.0, 30.0)
    assert heard.again(3, 15.0) == heard, "reports may overtake each other"
