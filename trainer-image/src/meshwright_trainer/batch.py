"""What one micro-batch is, from the loader to the loss.

Shapes: B samples, T positions.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Batch:
    """One micro-batch of one rank. Always full: samples that only fill it up have weight 0 and sample id -1."""

    tokens: Tensor
    """Inputs, (B, T) int64; for models on other data any tensor whose first dim is B."""
    labels: Tensor
    """Targets, (B, T) int64; next tokens for text. For models on other data any tensor whose first dim is B."""
    weights: Tensor
    """How much each target counts, (B, T) or (B,) float32; 0 for padding."""
    sample_id: Tensor
    """Global sample ids, (B,) int64: the place in the global order, whatever rank or micro-batch it fell into."""
    position_id: Tensor
    """Position within its document, (B, T) int64."""
    document_id: Tensor
    """Which document of the sample a token belongs to, (B, T) int64; -1 for padding. Equal ids may see each other."""
    extra: dict[str, Tensor] = field(default_factory=dict)
    """Further tensors that a dataset of your own gives its model; first dim B."""

    @property
    def size(self) -> int:
        """Samples in the micro-batch, those that fill it up too."""
        return int(self.sample_id.shape[0])

    def to(self, device: torch.device) -> Batch:
        """The same micro-batch on a device."""
        moved: dict[str, Any] = {f.name: getattr(self, f.name).to(device) for f in fields(self) if f.name != "extra"}
        return replace(self, **moved, extra={name: value.to(device) for name, value in self.extra.items()})


@dataclass(frozen=True)
class Window:
    """What one rank computes in one step: its micro-batches in global order."""

    step: int
    """Number of the step, from 1."""
    micro_batches: tuple[Batch, ...]
    """This rank's micro-batches. The rank with batch coordinate r of n has the global micro-batches r, n + r, ..."""
