"""Whether a TrainingJob can be run. The CRD and its policies hold the same rules, but admission is never trusted."""

from __future__ import annotations

from meshwright_api.checks.features import feature_problems
from meshwright_api.checks.semantics import semantic_problems
from meshwright_api.checks.shape import shape_problems
from meshwright_api.checks.template import template_problems
from meshwright_api.checks.trainer import trainer_problems
from meshwright_api.errors import Problem
from meshwright_api.reading import read
from meshwright_api.resolve import resolve
from meshwright_api.spec import TrainingJobSpec

__all__ = ["problems"]


def problems(raw: object, name: str) -> tuple[Problem, ...]:
    """Everything that is wrong with a spec as the API server holds it, in the job of that name.

    Pure, and never raises, whatever the value: objects that are older than a rule must not stop the controller.
    """
    shape = shape_problems(raw)
    if shape or not isinstance(raw, dict):
        return shape
    spec = read(TrainingJobSpec, raw)
    resolved = resolve(spec)
    return (
        *feature_problems(raw),
        *semantic_problems(spec, resolved, name),
        *template_problems(spec, resolved),
        *trainer_problems(spec, resolved),
    )
