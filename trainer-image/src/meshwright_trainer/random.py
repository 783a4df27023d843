"""Randomness as a function of what is drawn for, never of who draws it.

A key is (seed, step, global sample id, position); the site's name and the feature's index complete it. So the mask of a
token is the same whatever rank, micro-batch or accumulation it falls into, and a resumed or resized run draws it again.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Key:
    """What the draws of one micro-batch are keyed by."""

    seed: int
    step: int
    sample_id: Tensor
    """(B,) int64."""
    position: Tensor
    """Place in the sample (not in the document), (B, T) or (T,) int64."""
