"""Learning rates against closed forms and torch's schedulers."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

from meshwright_api.errors import InvalidTrainer
from meshwright_api.trainer_config import OptimizerConfig, trainer_config
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.schedule import SCHEDULES, check_schedule, learning_rate

PEAK = 0.4


def config(**schedule: Any) -> OptimizerConfig:
    section = {
        "model": {"name": "gpt3"},
        "steps": 20,
        "optimizer": {"learningRate": PEAK, "learningRateSchedule": schedule},
    }
    return trainer_config(section, 1).optimizer


def rates(given: OptimizerConfig, count: int = 20) -> list[float]:
    return [learning_rate(given, applied) for applied in range(count)]


def torchs(kind: Any, *args: Any, count: int = 20, **arguments: Any) -> list[float]:
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=PEAK)
    scheduler = kind(optimizer, *args, **arguments)
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the optimizer makes no steps here
        for _ in range(count):
            found.append(optimizer.param_groups[0]["lr"])
            scheduler.step()
    return found


def test_cosine_is_torchs() -> None:
    expected = torchs(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=20, eta_min=0.1)
    assert rates(config(name="Cosine", minimum=0.1)) == pytest.approx(expected, rel=1e-12)


def test_linear_is_torchs() -> None:
    expected = torchs(torch.optim.lr_scheduler.LinearLR, start_factor=1.0, end_factor=0.25, total_iters=20)
    assert rates(config(name="Linear", minimum=PEAK / 4)) == pytest.approx(expected, rel=1e-12)


def test_step_is_torchs() -> None:
    expected = torchs(torch.optim.lr_scheduler.MultiStepLR, milestones=[5, 9, 17], gamma=0.1)
    assert rates(config(name="Step", milestones=[5, 9, 17])) == pytest.approx(expected, rel=1e-12)


def test_inverse_square_root_is_vaswanis() -> None:
    found = rates(config(name="InverseSquareRoot", warmupSteps=4))
    expected = [min(n**-0.5, n * 4**-1.5) * PEAK * 4**0.5 for n in range(1, 21)]
    assert found == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("name", SCHEDULES)
def test_warm_up_rises_in_equal_steps_to_the_peak(name: str) -> None:
    given = config(name=name, warmupSteps=5, milestones=[15])
    assert rates(given, 5) == pytest.approx([PEAK * n / 5 for n in range(1, 6)], rel=1e-15)
    if name != "InverseSquareRoot":
        assert learning_rate(given, 5) == pytest.approx(PEAK, rel=1e-15)


@pytest.mark.parametrize("name", ["Cosine", "Linear"])
def test_the_fall_ends_at_the_minimum_and_stays_there(name: str) -> None:
    given = config(name=name, warmupSteps=2, decaySteps=10, minimum=0.01)
    assert [learning_rate(given, applied) for applied in (10, 11, 1000)] == pytest.approx([0.01] * 3)
    assert learning_rate(given, 9) > 0.01


def test_what_cannot_be_followed_is_refused() -> None:
    with pytest.raises(InvalidLaunch, match="'Cosinus' is unknown; use one of Constant, Cosine"):
        check_schedule(config(name="Cosinus").learning_rate_schedule)
    with pytest.raises(InvalidTrainer, match="warmupSteps: 11 is beyond decaySteps 10"):
        config(name="Cosine", warmupSteps=11, decaySteps=10)
