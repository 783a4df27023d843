"""A TrainingJob from a file, as far as a picture needs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from meshwright.picture.inventory import flat
from meshwright_api import names
from meshwright_api.checks.features import feature_problems
from meshwright_api.errors import InvalidJob, Problem
from meshwright_api.job import TrainingJob, parse_job
from meshwright_api.reading import read
from meshwright_api.spec import TrainingJobSpec

PLANNED: Final = "planned"
"""UID of a job that the API server has not seen."""
_LAST: Final = "9999-12-31T00:00:00Z"
"""It stands behind every job of its priority."""


class NoJob(ValueError):
    """A file that does not hold exactly one TrainingJob."""


def job_of(documents: Iterable[object], namespace: str) -> tuple[TrainingJob, tuple[Problem, ...]]:
    """The one TrainingJob among the documents of a file, and what this version's operator would refuse in it.

    A field that a later version has is no reason not to look where the job would be.

    Args:
        documents: of the file.
        namespace: of the job, where it names none.

    Raises:
        NoJob: there is none, or more than one.
        InvalidJob: it could not be run by any version.
    """
    found = [each for kind, each in flat(documents) if kind == names.KIND]
    if len(found) != 1:
        raise NoJob(f"holds {len(found) or 'no'} TrainingJob{'s' * (len(found) > 1)}; give a file with exactly one")
    raw: dict[str, Any] = dict(found[0])
    metadata = raw.get("metadata") if isinstance(raw.get("metadata"), Mapping) else {}
    # Whatever a file says of its identity, this is a job that does not exist yet.
    raw["metadata"] = {"namespace": namespace, **(metadata or {}), "uid": PLANNED, "creationTimestamp": _LAST}
    raw.pop("status", None)
    try:
        return parse_job(raw), ()
    except InvalidJob as error:
        later = feature_problems(raw["spec"]) if isinstance(raw.get("spec"), dict) else ()
        if set(error.problems) - set(later):
            raise
        return TrainingJob(error.metadata, read(TrainingJobSpec, raw["spec"]), error.status), error.problems
