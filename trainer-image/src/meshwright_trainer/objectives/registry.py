"""From `spec.trainer.objective` to an objective: a built-in one by name, or a factory of one's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from meshwright_api.errors import InvalidTrainer, Problem
from meshwright_api.trainer import Objective as ObjectiveSpec
from meshwright_trainer.objectives.base import Objective
from meshwright_trainer.objectives.losses import CrossEntropy
from meshwright_trainer.objectives.masked_token import MaskedToken
from meshwright_trainer.objectives.next_token import NextToken
from meshwright_trainer.plugins import call_factory

SPEC: Final = "spec.trainer.objective"


def build_objective(
    spec: ObjectiveSpec, default_name: str, *, vocabulary_size: int, mask_token: int | None = None
) -> Objective:
    """The objective that a job asks for.

    A factory is called with the job's arguments, and with `vocabulary_size` and `mask_token` if it has parameters of
    these names.

    Args:
        spec: the job's objective section.
        default_name: the model's own objective, for a job that names none.
        vocabulary_size: entries of the tokenizer.
        mask_token: the tokenizer's mask token, if it has one.

    Raises:
        InvalidTrainer: naming the field that cannot be.
    """
    if spec.factory is not None:
        if spec.name is not None:
            raise _invalid("", "give either a name or a factory")
        offered = {"vocabulary_size": vocabulary_size, "mask_token": mask_token}
        return _checked(spec.factory, call_factory(spec.factory, f"{SPEC}.factory", spec.arguments, offered))
    name = spec.name or default_name
    if name not in _BUILT_IN:
        raise _invalid(".name", f"no objective {name!r}; use one of {', '.join(_BUILT_IN)}")
    arguments = dict(spec.arguments or {})
    for argument, value in arguments.items():
        if argument not in _ARGUMENTS[name]:
            raise _invalid(".arguments", f"{name} knows no {argument}; its arguments: {', '.join(_ARGUMENTS[name])}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _invalid(f".arguments.{argument}", f"must be a number, for example 0.1, but it is {value!r:.80}")
    try:
        return _BUILT_IN[name](arguments, vocabulary_size, mask_token)
    except ValueError as error:
        raise _invalid(".arguments", f"{name}: {error}") from error


def _next_token(arguments: Mapping[str, Any], vocabulary_size: int, mask_token: int | None) -> Objective:
    return NextToken(CrossEntropy(**arguments))


def _masked_token(arguments: Mapping[str, Any], vocabulary_size: int, mask_token: int | None) -> Objective:
    if mask_token is None:
        raise InvalidTrainer(
            (
                Problem(
                    "spec.trainer.data.tokenizer", "MaskedToken needs a tokenizer with a mask token; use Bytes or BPE"
                ),
            )
        )
    rest = {name: value for name, value in arguments.items() if name != "probability"}
    own = {"probability": arguments["probability"]} if "probability" in arguments else {}
    return MaskedToken(vocabulary_size, mask_token, cross_entropy=CrossEntropy(**rest), **own)


def _checked(factory: str, made: Any) -> Objective:
    lacking = [name for name in ("prepare", "weight", "__call__") if not callable(getattr(made, name, None))]
    if lacking:
        raise _invalid(".factory", f"{factory} returned a {type(made).__name__} without {', '.join(lacking)}")
    objective: Objective = made
    return objective


def _invalid(below: str, message: str) -> InvalidTrainer:
    return InvalidTrainer((Problem(SPEC + below, message),))


_BUILT_IN: Final[Mapping[str, Callable[[Mapping[str, Any], int, int | None], Objective]]] = {
    "NextToken": _next_token,
    "MaskedToken": _masked_token,
}

_CROSS_ENTROPY: Final = ("label_smoothing", "z_loss")
_ARGUMENTS: Final = {"NextToken": _CROSS_ENTROPY, "MaskedToken": ("probability", *_CROSS_ENTROPY)}
