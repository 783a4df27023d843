"""The exceptions of placement.

PlacementError
  InvalidQuantity   a text that is no Kubernetes quantity
  InvalidTopology   levels that cannot be a tree
  InvalidLayout     axes that cannot be a grid of pods
"""

from __future__ import annotations


class PlacementError(Exception):
    """Root of everything that placement raises on purpose."""


class InvalidQuantity(PlacementError):
    """A text that is no Kubernetes quantity."""


class InvalidTopology(PlacementError):
    """Levels that cannot be a tree."""


class InvalidLayout(PlacementError):
    """Axes that cannot be a grid of pods."""
