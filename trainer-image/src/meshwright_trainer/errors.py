"""The exceptions that end a training process on purpose.

TrainerError
  InvalidLaunch   what the process is told cannot be
  Unsupported     what the job asks for is not part of this version
  Diverged        the loss is no longer a number
"""

from __future__ import annotations


class TrainerError(Exception):
    """Root of what the trainer raises on purpose; its text says what to do."""


class InvalidLaunch(TrainerError):
    """The job file, the launch plan or the environment is not usable."""


class Unsupported(TrainerError):
    """The job asks for something that is not part of this version."""


class Diverged(TrainerError):
    """Too many steps in a row had no finite gradient."""
