"""JSON lines on a stream: what people read and programs parse."""

from __future__ import annotations

import json
import math
from typing import Any, TextIO

from meshwright_trainer.sinks.base import Record


class JsonLines:
    """Writes each record as one line, at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, record: Record) -> None:
        """Writes one line."""
        # One write for text and newline: lines of processes that share a pipe do not mix.
        self._stream.write(json.dumps(_finite(record.document())) + "\n")
        self._stream.flush()

    def close(self) -> None:
        """The stream is its owner's."""


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity; readers that hold to the standard would refuse the whole line."""
    if isinstance(value, dict):
        return {name: _finite(inner) for name, inner in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
