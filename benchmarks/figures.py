"""A figure as one JSON line: name, value, unit, goal, and whether more or less is better."""

from __future__ import annotations

import json
from typing import Any


def figure(
    name: str, value: float, *, unit: str = "ratio", goal: float | None = None, better: str = "lower", **context: Any
) -> str:
    """The line of a figure; further facts about it are its context."""
    line: dict[str, Any] = {"name": name, "value": round(value, 4), "unit": unit}
    if goal is not None:
        line["goal"] = goal
    return json.dumps({**line, "better": better, **context})
