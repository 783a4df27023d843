"""What every way of spreading a model over ranks looks like to an engine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from meshwright_trainer.models.base import ModelModule
from meshwright_trainer.parallel.boxes import Box


@dataclass(frozen=True)
class Slice:
    """This rank's part of one parameter: what its optimizer updates."""

    name: str
    """The parameter's name in the model."""
    box: Box
    """Where the part lies in the parameter."""
    tensor: Tensor
    """The part, a live view."""
    owner: bool
    """Whether this rank writes it to checkpoints: one of its replicas does."""
    trainable: bool = True


class Layout(Protocol):
    """A model spread over the ranks of a mesh."""

    @property
    def slices(self) -> tuple[Slice, ...]:
        """This rank's parts of all parameters; frozen ones too."""
        ...

    @property
    def split(self) -> bool:
        """Whether the slices are parts, spread over the axis `shard`, or whole parameters."""
        ...

    @property
    def forward(self) -> ModelModule:
        """The model as it is called in training, inside `micro_batch`."""
        ...

    def micro_batch(self, *, last: bool) -> AbstractContextManager[None]:
        """Forward and backward pass of one micro-batch happen inside."""
        ...

    def gradients(self) -> list[Tensor]:
        """Gradients of the trainable slices, summed over all micro-batches of all ranks; the engine may change them."""
        ...

    def clear(self) -> None:
        """Forgets the gradients."""
        ...

    def publish(self) -> None:
        """After slices were changed: the model computes with the new values on every rank."""
        ...

    def evaluation(self) -> AbstractContextManager[ModelModule]:
        """The model as it is called without gradients and without randomness."""
        ...
