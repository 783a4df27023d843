"""Which model, tokenizer and data a run has: what must be equal for a checkpoint to be resumed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from meshwright_trainer.checkpoint.errors import OtherRun


@dataclass(frozen=True)
class Fingerprint:
    """JSON values."""

    model: Mapping[str, Any]
    """Family and sizes."""
    tokenizer: str
    """Identity of the tokenizer."""
    data: Mapping[str, Any]
    """Hashes of the sources, how they are mixed, in which order."""

    def to_json(self) -> dict[str, Any]:
        """As it is read back from a manifest: tuples have become lists."""
        document: dict[str, Any] = json.loads(
            json.dumps({"model": dict(self.model), "tokenizer": self.tokenizer, "data": dict(self.data)})
        )
        return document


def check_fingerprint(stored: Mapping[str, Any], own: Fingerprint, where: str) -> None:
    """Returns if a run with this fingerprint may go on from a checkpoint.

    Raises:
        OtherRun: it may not; the message names what differs and how to go on.
    """
    found = list(_differences("", stored, own.to_json()))
    if found:
        shown = "\n".join(f"  {line}" for line in found[:10])
        more = f"\n  and {len(found) - 10} more" if len(found) > 10 else ""
        raise OtherRun(
            f"{where} is of another run:\n{shown}{more}\n"
            "To go on from it, make them equal. To begin anew, set spec.trainer.checkpoint.resume: Never, or another "
            "checkpoint.path; spec.trainer.model.init.from begins anew with its weights."
        )


def _differences(path: str, stored: Any, own: Any) -> Iterator[str]:
    if isinstance(stored, Mapping) and isinstance(own, Mapping):
        for key in sorted({*stored, *own}):
            yield from _differences(f"{path}.{key}" if path else key, stored.get(key), own.get(key))
    elif stored != own:
        yield f"{path}: {_short(stored)} there, {_short(own)} here"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
