"""One record, and what takes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True)
class Record:
    """Something that happened after a step."""

    event: str
    """`started`, `step`, `evaluation`, `checkpoint`, `finished`, `terminated`."""
    step: int
    """Steps done."""
    values: Mapping[str, Any] = field(default_factory=dict)
    """Figures by name, JSON values; nested ones by group: `seconds: {data: ..., step: ...}`."""

    def document(self) -> dict[str, Any]:
        """One flat JSON object."""
        return {"event": self.event, "step": self.step, **self.values}

    def figures(self) -> dict[str, float]:
        """The numbers alone, nested names joined by `/`."""
        return {name: float(value) for name, value in _flat(self.values) if isinstance(value, int | float)}


class Sink(Protocol):
    """Takes records, in order."""

    def write(self, record: Record) -> None:
        """Takes one record."""
        ...

    def close(self) -> None:
        """Called once, when no more come."""
        ...


def _flat(values: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in values.items():
        found += _flat(value, f"{prefix}{name}/") if isinstance(value, Mapping) else [(prefix + name, value)]
    return found
