"""The exceptions of placement.

PlacementError
  InvalidQuantity   a text that is no Kubernetes quantity
"""

from __future__ import annotations


class PlacementError(Exception):
    """Root of everything that placement raises on purpose."""


class InvalidQuantity(PlacementError):
    """A text that is no Kubernetes quantity."""
