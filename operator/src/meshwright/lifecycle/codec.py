"""Observations and decisions as JSON, so that a pass can be logged by one process and decided again by another."""

from __future__ import annotations

from pydantic import TypeAdapter

from meshwright.lifecycle.model import Decision, Observation

_OBSERVATION = TypeAdapter(Observation)
_DECISION = TypeAdapter(Decision)


def observation_to_json(observation: Observation) -> str:
    """One compact line."""
    return _OBSERVATION.dump_json(observation, by_alias=True, exclude_defaults=True).decode()


def observation_from_json(text: str) -> Observation:
    """The observation that was logged. Raises pydantic.ValidationError when it is none."""
    return _OBSERVATION.validate_json(text)


def decision_to_json(decision: Decision) -> str:
    """One compact line."""
    return _DECISION.dump_json(decision, by_alias=True, exclude_defaults=True).decode()
