"""The API of Meshwright: TrainingJob, its status, the launch plan. Operator and trainer share nothing else."""

from meshwright_api.checks import problems
from meshwright_api.errors import InvalidJob, Problem
from meshwright_api.job import Metadata, TrainingJob, parse_job, parse_metadata, parse_status
from meshwright_api.launch_plan import LaunchPlan
from meshwright_api.resolve import Resolved, ResolvedRole, resolve
from meshwright_api.spec import TrainingJobSpec
from meshwright_api.status import TrainingJobStatus

__all__ = [
    "InvalidJob",
    "LaunchPlan",
    "Metadata",
    "Problem",
    "Resolved",
    "ResolvedRole",
    "TrainingJob",
    "TrainingJobSpec",
    "TrainingJobStatus",
    "parse_job",
    "parse_metadata",
    "parse_status",
    "problems",
    "resolve",
]
