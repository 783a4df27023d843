"""The exceptions of rendering.

RenderingError
  PlanMismatch  stored plan and placement are not the ones that were committed
"""

from __future__ import annotations


class RenderingError(Exception):
    """Root of everything that rendering raises on purpose."""


class PlanMismatch(RenderingError):
    """The two ConfigMaps of a plan are not what was committed: cut, changed, forged, or of two different plans."""
