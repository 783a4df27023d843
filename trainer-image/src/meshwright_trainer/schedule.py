"""How the learning rate goes: a pure function of the number of applied updates.

A step whose update was left out has applied nothing, so the rate stays where it was.
"""

from __future__ import annotations

import math
from typing import Final

from meshwright_api.trainer_config import OptimizerConfig, ScheduleConfig
from meshwright_trainer.errors import InvalidLaunch

SCHEDULES: Final = ("Constant", "Cosine", "Linear", "InverseSquareRoot", "Step")
"""Names of the schedules."""


def check_schedule(schedule: ScheduleConfig) -> None:
    """Refuses what no schedule can follow.

    Raises:
        InvalidLaunch: the name is unknown.
    """
    field = "spec.trainer.optimizer.learningRateSchedule"
    if schedule.name not in SCHEDULES:
        raise InvalidLaunch(f"{field}.name: {schedule.name!r} is unknown; use one of {', '.join(SCHEDULES)}")


def learning_rate(config: OptimizerConfig, applied: int) -> float:
    """Rate of the next update.

    Warm-up is linear: update number n of the first w has n/w of the peak. After it the rate has fallen to the minimum
    once `decaySteps` updates are applied; without warm-up Cosine, Linear and Step are those of torch's schedulers.

    Args:
        config: peak rate and schedule.
        applied: updates done so far, 0 before the first.
    """
    schedule, peak = config.learning_rate_schedule, config.learning_rate
    if applied < schedule.warmup_steps:
        return peak * (applied + 1) / schedule.warmup_steps
    match schedule.name:
        case "Cosine":
            share = (1.0 + math.cos(math.pi * _progress(schedule, applied))) / 2.0
            return schedule.minimum + (peak - schedule.minimum) * share
        case "Linear":
            return schedule.minimum + (peak - schedule.minimum) * (1.0 - _progress(schedule, applied))
        case "InverseSquareRoot":
            # Vaswani et al. 2017, section 5.3, scaled so that the peak is reached at the end of the warm-up.
            return max(schedule.minimum, peak * math.sqrt(max(schedule.warmup_steps, 1) / (applied + 1)))
        case "Step":
            passed = sum(milestone <= applied for milestone in schedule.milestones)
            return max(schedule.minimum, peak * schedule.factor**passed)
        case _:
            return peak


def _progress(schedule: ScheduleConfig, applied: int) -> float:
    """How far the fall has come, 0 to 1."""
    length = schedule.decay_steps - schedule.warmup_steps
    return 1.0 if length <= 0 else min(1.0, (applied - schedule.warmup_steps) / length)
