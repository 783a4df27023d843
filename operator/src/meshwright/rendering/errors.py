"""The exceptions of rendering.

RenderingError
  PlanMismatch          stored plan and placement are not the ones that were committed
  InvalidProfile        a profile of the administrator cannot be used
  Unrenderable          a job cannot be given pods here as it and its surroundings are now
    UnknownProfile      it names a profile that there is not
    PodSecurityConflict its pods would be refused by their namespace's Pod Security
    PortsTaken          no ports are left on the host network of its nodes
"""

from __future__ import annotations

from typing import ClassVar

from meshwright_api import names


class RenderingError(Exception):
    """Root of everything that rendering raises on purpose."""


class PlanMismatch(RenderingError):
    """The two ConfigMaps of a plan are not what was committed: cut, changed, forged, or of two different plans."""


class InvalidProfile(RenderingError):
    """A profile cannot be used; the message names it, the field, and what to do."""


class Unrenderable(RenderingError):
    """The job waits until somebody changes it, a profile, or its namespace; the message says what."""

    reason: ClassVar[str]


class UnknownProfile(Unrenderable):
    """There is no profile of that name; the message says which there are."""

    reason = names.REASON_UNKNOWN_PROFILE


class PodSecurityConflict(Unrenderable):
    """A field of the pods is refused by the level that their namespace enforces."""

    reason = names.REASON_POD_SECURITY


class PortsTaken(Unrenderable):
    """Other gangs have the ports."""

    reason = names.REASON_PORTS_TAKEN
