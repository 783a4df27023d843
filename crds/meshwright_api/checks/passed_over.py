"""Fields of a trainer section that nothing would read: refused, since whoever sets one relies on it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from meshwright_api.base import ApiModel
from meshwright_api.errors import Problem
from meshwright_api.keys import alias_of
from meshwright_api.trainer import Model, Optimizer, TrainerSpec
from meshwright_api.trainer_defaults import DEFAULTS

_MODEL: Final = frozenset({"factory", "name", "arguments", "init"})
"""What a model of one's own is told."""
_OPTIMIZERS: Final[Mapping[str, frozenset[str]]] = {
    "AdamW": frozenset({"betas", "epsilon"}),
    "SGD": frozenset({"momentum"}),
}
"""What each built-in optimizer reads beside rate, decay and clipping."""
_BUILT_IN: Final = frozenset({"name", "weight_decay", "betas", "epsilon", "momentum"})
"""What only a built-in optimizer reads."""
_SCHEDULES: Final[Mapping[str, frozenset[str]]] = {
    "Constant": frozenset(),
    "Cosine": frozenset({"decay_steps", "minimum"}),
    "Linear": frozenset({"decay_steps", "minimum"}),
    "InverseSquareRoot": frozenset({"minimum"}),
    "Step": frozenset({"milestones", "factor", "minimum"}),
}
"""What each schedule reads beside the warm-up."""


def passed_over(trainer: TrainerSpec) -> Iterator[Problem]:
    """The fields that would be passed over in silence."""
    yield from _model(trainer.model)
    yield from _optimizer(trainer.optimizer)
    data = trainer.data
    if data is not None and data.factory is None and data.arguments:
        yield _needs_factory("data")
    if data is not None and data.factory is not None and data.format is not None:
        yield Problem("spec.trainer.data.format", "is for sources; a dataset of one's own reads its data itself, so "
                      "leave it out")  # fmt: skip


def _model(model: Model | None) -> Iterator[Problem]:
    if model is None:
        return
    if model.factory is not None:
        for field in sorted(_given(model) - _MODEL):
            yield Problem(f"spec.trainer.model.{alias_of(Model, field)}", "is for built-in models; give a factory what "
                          "it needs as arguments")  # fmt: skip
    if model.init is not None and model.init.load and model.init.from_ is None:
        yield Problem("spec.trainer.model.init.load", "says what is loaded, but not from where; set init.from, or "
                      "leave it out")  # fmt: skip


def _optimizer(optimizer: Optimizer | None) -> Iterator[Problem]:
    if optimizer is None:
        return
    at = "spec.trainer.optimizer"
    if optimizer.factory is not None:
        for field in sorted(_given(optimizer) & _BUILT_IN):
            yield Problem(f"{at}.{alias_of(Optimizer, field)}", "is for built-in optimizers; give a factory what it "
                          "needs as arguments")  # fmt: skip
    else:
        if optimizer.arguments:
            yield _needs_factory("optimizer")
        yield from _unread(at, optimizer, optimizer.name or DEFAULTS["optimizer"]["name"], _OPTIMIZERS)
    schedule = optimizer.learning_rate_schedule
    if schedule is not None:
        default = DEFAULTS["optimizer"]["learningRateSchedule"]["name"]
        yield from _unread(f"{at}.learningRateSchedule", schedule, schedule.name or default, _SCHEDULES)


def _unread(at: str, section: ApiModel, name: str, readers: Mapping[str, frozenset[str]]) -> Iterator[Problem]:
    """Fields that belong to another choice than the one that was made."""
    if name not in readers:
        return
    chosen_by_others = frozenset[str]().union(*readers.values()) - readers[name]
    for field in sorted(_given(section) & chosen_by_others):
        readers_of_it = " and ".join(sorted(other for other, fields in readers.items() if field in fields))
        yield Problem(f"{at}.{alias_of(type(section), field)}", f"is read by {readers_of_it}, not by {name}; leave it "
                      "out, or change the name")  # fmt: skip


def _needs_factory(section: str) -> Problem:
    return Problem(f"spec.trainer.{section}.arguments", "is for a factory, and there is none; leave it out, or set "
                   f"{section}.factory")  # fmt: skip


def _given(section: ApiModel) -> frozenset[str]:
    """Names of the fields that say something."""
    values: dict[str, Any] = {name: getattr(section, name) for name in section.model_fields_set}
    return frozenset(name for name, value in values.items() if value not in (None, (), {}))
