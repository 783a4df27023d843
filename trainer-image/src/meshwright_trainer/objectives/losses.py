"""Cross-entropy as a weighted sum.

Shapes: B samples, T positions, V entries of the vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor

from meshwright_trainer.batch import Batch
from meshwright_trainer.errors import InvalidLaunch
from meshwright_trainer.objectives.base import Loss

_IGNORED: Final = -100


@dataclass(frozen=True)
class CrossEntropy:
    """How the distance between logits and targets is counted."""

    label_smoothing: float = 0.0
    """Share of each target that is spread evenly over the vocabulary (Szegedy et al. 2016, section 7)."""
    z_loss: float = 0.0
    """Factor of the squared log of the softmax's denominator, which keeps logits small (PaLM, section 5)."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            raise ValueError(f"label_smoothing is in [0, 1), not {self.label_smoothing}")
        if self.z_loss < 0:
            raise ValueError(f"z_loss is 0 or more, not {self.z_loss}")

    def __call__(self, logits_BTV: Tensor, batch: Batch) -> Loss:
        """Sum over the targets, each times its weight, in float32 at least.

        `correct`, the weighted count of targets that have the highest logit, is there in evaluations only: it costs a
        pass over all logits.
        """
        _check(logits_BTV, batch.labels)
        logits_NV = logits_BTV.flatten(0, -2)
        logits_NV = logits_NV.to(torch.promote_types(logits_NV.dtype, torch.float32))
        weights_N = batch.weights.flatten().to(logits_NV.dtype)
        labels_N = batch.labels.flatten().long()
        # A target without weight is not looked at: whatever its label is, and were its logits infinite.
        counted_N = torch.where(weights_N != 0, labels_N, _IGNORED)
        losses_N = F.cross_entropy(
            logits_NV, counted_N, reduction="none", ignore_index=_IGNORED, label_smoothing=self.label_smoothing
        )
        if self.z_loss:
            squares_N = torch.logsumexp(logits_NV, dim=-1).square()
            losses_N = losses_N + self.z_loss * torch.where(weights_N != 0, squares_N, 0.0)
        sums = {}
        if not logits_BTV.requires_grad:
            sums["correct"] = ((logits_NV.argmax(dim=-1) == labels_N) * weights_N).sum()
        return Loss(sum=(losses_N * weights_N).sum(), sums=sums)


def _check(logits: Tensor, labels: Tensor) -> None:
    """A model or a dataset of one's own may give anything."""
    if not isinstance(logits, Tensor) or logits.shape[:-1] != labels.shape:
        found = tuple(logits.shape) if isinstance(logits, Tensor) else f"no tensor but a {type(logits).__name__}"
        raise InvalidLaunch(
            f"spec.trainer.model: the output is {found}; cross-entropy needs logits of the labels' shape "
            f"{tuple(labels.shape)} and one dim more, the classes"
        )
    if labels.is_floating_point():
        raise InvalidLaunch(f"spec.trainer.data: cross-entropy needs whole numbers as labels, not {labels.dtype}")
