"""From `spec.trainer.model` to a model: a built-in family by name, or a factory of one's own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

import torch
from torch import nn

from meshwright_api.errors import InvalidTrainer, Problem
from meshwright_api.trainer import Model as ModelSpec
from meshwright_trainer.models import bert, gpt3
from meshwright_trainer.models.base import Model
from meshwright_trainer.models.config import SPEC, TransformerConfig, resolve
from meshwright_trainer.plugins import call_factory


def build_model(
    spec: ModelSpec, *, vocabulary_size: int, sequence_length: int, device: torch.device | str = "meta"
) -> Model:
    """The model that a job asks for.

    A factory is called with the job's arguments, and with `vocabulary_size` and `sequence_length` if it has parameters
    of these names. It returns a `Model`, or a plain module, which is then trained on next tokens unless the job names
    another objective, and gets no plan.

    Args:
        spec: the job's model section.
        vocabulary_size: entries of the tokenizer.
        sequence_length: tokens in a sequence.
        device: where a built-in model's parameters are made; a factory decides for itself.

    Raises:
        InvalidTrainer: naming every field that cannot be.
    """
    if (spec.name is None) == (spec.factory is None):
        raise InvalidTrainer((Problem(SPEC, f"give either a name ({', '.join(_FAMILIES)}) or a factory"),))
    if spec.factory is not None:
        offered = {"vocabulary_size": vocabulary_size, "sequence_length": sequence_length}
        return _from_factory(spec, spec.factory, offered)
    family = _FAMILIES.get(spec.name or "")
    if family is None:
        raise InvalidTrainer((Problem(f"{SPEC}.name", f"no model {spec.name!r}; use one of {', '.join(_FAMILIES)}"),))
    presets, build = family
    config = resolve(spec, presets, vocabulary_size=vocabulary_size, sequence_length=sequence_length)
    with torch.device(device):
        return build(config, spec.arguments or {})


def _from_factory(spec: ModelSpec, factory: str, offered: Mapping[str, Any]) -> Model:
    made = call_factory(factory, f"{SPEC}.factory", spec.arguments, offered)
    _check_forward(factory, made.module if isinstance(made, Model) else made)
    named = {"factory": factory, "arguments": dict(spec.arguments or {})}
    if isinstance(made, Model):
        return made if made.identity else replace(made, identity=named)
    if isinstance(made, nn.Module):
        return Model(module=made, objective="NextToken", identity=named)
    kind = type(made).__name__
    raise InvalidTrainer(
        (Problem(f"{SPEC}.factory", f"{factory} returned a {kind}; return a torch.nn.Module or a Model"),)
    )


def _check_forward(factory: str, module: Any) -> None:
    """Most modules take tensors; the trainer's contract is the whole micro-batch and a key."""
    if not isinstance(module, nn.Module):
        return
    signature = inspect.signature(module.forward)
    try:
        signature.bind("batch", "key")
    except TypeError as error:
        say = f"{factory}: forward{signature} cannot be called as forward(batch, key): {error}; batch.tokens has the "
        raise InvalidTrainer((Problem(f"{SPEC}.factory", f"{say}input"),)) from error


def _gpt3(config: TransformerConfig, arguments: Mapping[str, Any]) -> Model:
    _refuse_others("gpt3", arguments, ("band",))
    band = arguments.get("band")
    if band is not None and not (isinstance(band, int) and band >= 1):
        raise InvalidTrainer((Problem(f"{SPEC}.arguments.band", f"a number of positions from 1 on, not {band!r}"),))
    return gpt3.build(gpt3.GPT3Config(**asdict(config), band=band))


def _bert(config: TransformerConfig, arguments: Mapping[str, Any]) -> Model:
    _refuse_others("bert", arguments, ())
    return bert.build(config)


def _refuse_others(family: str, arguments: Mapping[str, Any], known: tuple[str, ...]) -> None:
    unknown = sorted(set(arguments) - set(known))
    if unknown:
        allowed = ", ".join(known) or "none"
        raise InvalidTrainer(
            (Problem(f"{SPEC}.arguments", f"{family} knows no {', '.join(unknown)}; its arguments: {allowed}"),)
        )


_FAMILIES: Final[Mapping[str, tuple[Mapping[str, Any], Callable[[TransformerConfig, Mapping[str, Any]], Model]]]] = {
    "gpt3": (gpt3.PRESETS, _gpt3),
    "bert": (bert.PRESETS, _bert),
}
