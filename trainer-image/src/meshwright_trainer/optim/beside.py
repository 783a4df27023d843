"""What an optimizer keeps beside the state of its parameters, where no checkpoint sees it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def kept_beside(optimizer: Any) -> dict[str, Any]:
    """Copies of an optimizer's options and of its own numbers, by where they stand.

    Left out are the parameters and learning rates of its groups, which are the trainer's, and flags of the optimizer
    itself, by which torch's remember what they have warned of.
    """
    groups = {
        f"param_groups[{number}][{key!r}]": _copied(value)
        for number, group in enumerate(optimizer.param_groups)
        for key, value in group.items()
        if key not in ("params", "lr")
    }
    own = {
        f"attribute {name!r}": _copied(value)
        for name, value in getattr(optimizer, "__dict__", {}).items()
        if isinstance(value, int | float | Tensor) and not isinstance(value, bool)
    }
    return groups | own


def lost(optimizer: Any, parameters: Sequence[Tensor], before: Mapping[str, Any]) -> Iterator[str]:
    """Where an optimizer keeps what a checkpoint would miss.

    Args:
        optimizer: after a step.
        parameters: those whose state is kept.
        before: what `kept_beside` found before the step.
    """
    after = kept_beside(optimizer)
    yield from (name for name in sorted({*before, *after}) if not _equal(before.get(name), after.get(name)))
    known = {id(p) for p in parameters}
    for key in optimizer.state:
        if id(key) not in known:
            yield "the state of a tensor that is no parameter" if isinstance(key, Tensor) else f"state[{key!r}]"


def _copied(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, list | tuple):
        return [_copied(part) for part in value]
    if isinstance(value, Mapping):
        return {key: _copied(part) for key, part in value.items()}
    return value


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, Tensor) or isinstance(b, Tensor):
        return False
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_equal, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_equal(a[key], b[key]) for key in a)
    return a is b or bool(a == b)
