from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.pace import Pace


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.floats(0, 2), max_size=200))
def test_no_ten_seconds_have_more_than_a_hundred_and_a_burst(steps: list[float]) -> None:
    clock = Clock()
    pace = Pace(10, clock)
    happened = []
    for seconds in steps:
        clock.now += seconds
        for _ in range(7):
            if pace.wait() == 0:
                happened.append(clock.now)
    for i, start in enumerate(happened):
        assert sum(start <= moment < start + 10 for moment in happened[i:]) <= 100 + 6


def test_who_waits_as_told_gets_its_turn() -> None:
    clock = Clock()
    pace = Pace(10, clock)
    waits = []
    for _ in range(50):
        while wait := pace.wait():
            waits.append(wait)
            clock.now += wait
    assert clock.now - 1000 == pytest.approx(4.4, abs=0.2)
    assert all(0 < wait <= 0.11 for wait in waits)
