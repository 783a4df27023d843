"""How many bytes a rank sends along each axis of a mesh in one step, for a dense transformer in 16 bits.

Placement needs ratios only, so one reference shape stands for all models: what separates the axes are orders of
magnitude (tensor groups talk in every layer, replicas once in a step), and those hold for any large model. Formulas:
ring all-reduce 2(n-1)/n of the data (Patarasu, Yuan 2009); four of them per layer along tensor (Shoeybi et al. 2019);
keys and values around the ring along context (Liu et al. 2023), gathered twice and reduced once along shard
(Rajbhandari et al. 2020); one activation forwards and one gradient back between stages.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from meshwright.placement.nesting.layout import Axis, Pattern

_BYTES: Final = 2


@dataclass(frozen=True, slots=True)
class Shape:
    """What traffic depends on."""

    layers: int = 32
    hidden: int = 4096
    tokens: int = 32_768
    """Of one data replica in one step."""

    @property
    def parameters(self) -> int:
        """Weights of the layers."""
        return 12 * self.layers * self.hidden**2


REFERENCE: Final = Shape()


def mesh_axes(sizes: Iterable[tuple[str, int]], shape: Shape = REFERENCE) -> tuple[Axis, ...]:
    """The axes with their traffic.

    Args:
        sizes: name and size of every axis, outermost first.
        shape: the model and its batch.
    """
    every = tuple(sizes)
    size = {"pipeline": 1, "data": 1, "shard": 1, "context": 1, "tensor": 1} | dict(every)
    layers = shape.layers / size["pipeline"]
    activations = _BYTES * shape.tokens * shape.hidden / size["shard"] / size["context"]
    weights = _BYTES * shape.parameters / size["pipeline"] / size["tensor"]
    sent = {
        "tensor": 4 * layers * 2 * _share(size["tensor"]) * activations,
        "context": 3 * layers * 2 * _share(size["context"]) * activations * size["context"] / size["tensor"],
        "pipeline": 2 * activations / size["tensor"],
        "shard": 3 * _share(size["shard"]) * weights,
        "data": 2 * _share(size["data"]) * weights / size["shard"],
    }
    return tuple(
        Axis(
            name,
            count,
            sent.get(name, activations),
            Pattern.NEIGHBOURS if name == "pipeline" else Pattern.COLLECTIVE,
        )
        for name, count in every
    )


def _share(ranks: int) -> float:
    """The part of the data that a rank of a ring passes on in one round."""
    return (ranks - 1) / ranks
