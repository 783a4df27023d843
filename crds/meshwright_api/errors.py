"""The exceptions of the API package.

ApiError
  InvalidJob      an object that cannot be run; carries every problem that was found
  InvalidTrainer  a trainer section that cannot be run; carries every problem that was found
  PlanError       a launch plan that this reader cannot use
    PlanTooNew    it asks for a newer reader
    PlanUnreadable  it is no launch plan
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from meshwright_api.job import Metadata
    from meshwright_api.status import TrainingJobStatus


class ApiError(Exception):
    """Root of everything this package raises on purpose."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One reason why a job cannot be run."""

    field: str
    """Path of the field: `spec.roles[worker].replicas`."""
    message: str
    """A sentence with the value, the limit and a value that works."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class InvalidJob(ApiError):
    """A TrainingJob that cannot be run as it stands; what could be read of it is kept, so that it can be told so."""

    def __init__(self, metadata: Metadata, status: TrainingJobStatus, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.metadata = metadata
        self.status = status
        self.problems = problems


class InvalidTrainer(ApiError):
    """A trainer section that cannot be run as it stands."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems


class PlanError(ApiError):
    """A launch plan that cannot be used."""


class PlanTooNew(PlanError):
    """The plan was written for newer readers than this one."""


class PlanUnreadable(PlanError):
    """The document is no launch plan."""
