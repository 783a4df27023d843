"""The sizes of a transformer, worked out from `spec.trainer.model`: a preset, any field of which can be overridden."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from meshwright_api.errors import InvalidTrainer, Problem
from meshwright_api.trainer import Model as ModelSpec

SPEC: Final = "spec.trainer.model"
_SIZES: Final = {"layers": "layers", "hidden_size": "hiddenSize", "heads": "heads"}
_UNKNOWN_HERE: Final = {
    "key_value_heads": "keyValueHeads",
    "experts": "experts",
    "experts_per_token": "expertsPerToken",
    "capacity_factor": "capacityFactor",
    "group_tokens": "groupTokens",
}


@dataclass(frozen=True)
class Preset:
    """A published size."""

    layers: int
    hidden_size: int
    heads: int
    max_positions: int
    dropout: float = 0.0
    attention_dropout: float = 0.0


@dataclass(frozen=True)
class TransformerConfig:
    """The sizes of a transformer with equal layers."""

    layers: int
    hidden_size: int
    feed_forward_size: int
    heads: int
    vocabulary_size: int
    max_positions: int
    dropout: float = 0.0
    attention_dropout: float = 0.0
    tie_embeddings: bool = True

    @property
    def head_size(self) -> int:
        """Features of one head."""
        return self.hidden_size // self.heads

    def identity(self, family: str) -> dict[str, Any]:
        """Which model it is, for checkpoints. Dropout is not in it: a run may be taken up again with another one."""
        sizes = {name: value for name, value in asdict(self).items() if not name.endswith("dropout")}
        return {"family": family, **sizes}


def resolve(
    spec: ModelSpec, presets: Mapping[str, Preset], *, vocabulary_size: int, sequence_length: int
) -> TransformerConfig:
    """The sizes that a job asks for.

    Args:
        spec: the job's model section.
        presets: sizes by name.
        vocabulary_size: entries of the tokenizer; the model has as many unless the job asks for more.
        sequence_length: tokens in a sequence; the model has at least as many positions.

    Raises:
        InvalidTrainer: with every field that cannot be.
    """
    preset = _preset(spec, presets)
    given = {name: getattr(spec, name) for name in TransformerConfig.__dataclass_fields__}
    chosen: dict[str, Any] = {
        **({} if preset is None else vars(preset)),
        **{name: value for name, value in given.items() if value is not None},
    }
    missing = [wire for name, wire in _SIZES.items() if name not in chosen]
    if missing:
        raise InvalidTrainer(
            (Problem(f"{SPEC}.preset", f"without one {', '.join(missing)} must be given; presets: {_names(presets)}"),)
        )
    chosen.setdefault("feed_forward_size", 4 * chosen["hidden_size"])
    chosen.setdefault("vocabulary_size", vocabulary_size)
    if spec.max_positions is None:
        chosen["max_positions"] = max(sequence_length, chosen.get("max_positions", 1))
    config = TransformerConfig(**chosen)
    problems = _problems(spec, config, vocabulary_size, sequence_length)
    if problems:
        raise InvalidTrainer(tuple(problems))
    return config


def _preset(spec: ModelSpec, presets: Mapping[str, Preset]) -> Preset | None:
    if spec.preset is None:
        return None
    if spec.preset not in presets:
        raise InvalidTrainer(
            (Problem(f"{SPEC}.preset", f"{spec.name} has no preset {spec.preset!r}; use one of {_names(presets)}"),)
        )
    return presets[spec.preset]


def _problems(spec: ModelSpec, config: TransformerConfig, vocabulary_size: int, sequence_length: int) -> list[Problem]:
    found = [
        Problem(f"{SPEC}.{wire}", f"{spec.name} has no such field; leave it out")
        for name, wire in _UNKNOWN_HERE.items()
        if getattr(spec, name) is not None
    ]
    if config.hidden_size % config.heads:
        found.append(
            Problem(
                f"{SPEC}.heads",
                f"hiddenSize {config.hidden_size} is no multiple of {config.heads} heads; "
                f"use for example {_divisor_below(config.hidden_size, config.heads)}",
            )
        )
    if config.vocabulary_size < vocabulary_size:
        found.append(
            Problem(
                f"{SPEC}.vocabularySize",
                f"{config.vocabulary_size} is less than the tokenizer's {vocabulary_size} entries; "
                "leave it out or make it at least that",
            )
        )
    if config.max_positions < sequence_length:
        found.append(
            Problem(
                f"{SPEC}.maxPositions",
                f"{config.max_positions} is less than batch.sequenceLength {sequence_length}; raise it or leave it out",
            )
        )
    for wire, p in (("dropout", config.dropout), ("attentionDropout", config.attention_dropout)):
        if p == 1:
            found.append(Problem(f"{SPEC}.{wire}", "1 would drop everything; use less than 1"))
    return found


def _divisor_below(size: int, limit: int) -> int:
    return next(n for n in range(min(size, limit), 0, -1) if size % n == 0)


def _names(presets: Mapping[str, Preset]) -> str:
    return ", ".join(presets)
