"""The exceptions of model definitions. A job that asks for what cannot be is an `InvalidTrainer`, naming the field.

TrainerError
  ModelError
    PlanMismatch       a model and its plan do not fit each other
    ReferenceMismatch  weights in the form of `transformers` do not fit the model
"""

from __future__ import annotations

from meshwright_trainer.errors import TrainerError


class ModelError(TrainerError):
    """Root of what model definitions raise on purpose."""


class PlanMismatch(ModelError):
    """A model and its plan do not fit each other."""


class ReferenceMismatch(ModelError):
    """Weights in the form of `transformers` do not fit the model."""
