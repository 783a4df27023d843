"""The policy on names and on what may change when. In a policy, which can pass over writes that change no spec."""

from __future__ import annotations

from meshwright_api.checks.semantics import JOB_NAME, NAME_OVERHEAD
from meshwright_api.crd.validation import Validation, text
from meshwright_api.keys import alias_of
from meshwright_api.names import MAX_DNS_LABEL
from meshwright_api.spec import TrainingJobSpec

LAUNCH_FIELDS = ("trainer", "roles", "volumes", "profile", "placement", "queue", "agent")
"""What pods are made from: changes only while the job is suspended and has no pods."""
AFTER_THE_END = ("ttlSecondsAfterFinished",)
"""What may still change in a job that has finished."""


def change_variables() -> list[dict[str, str]]:
    """What the validations have in common."""
    digits = "size(string(r.?replicas.orValue(1) > 1 ? r.replicas - 1 : 0))"
    longest = f"(object.?spec.?roles.orValue([]).map(r, size(r.name) + {digits}) + [0]).max()"
    paused = " && ".join(f"{o}.?spec.?suspend.orValue(false)" for o in ("oldObject", "object"))
    phase = "oldObject.?status.?phase.orValue('Pending')"
    return [
        {"name": "isUpdate", "expression": "request.operation == 'UPDATE'"},
        {"name": "longestName", "expression": f"{MAX_DNS_LABEL - NAME_OVERHEAD} - {longest}"},
        {"name": "phase", "expression": f"variables.isUpdate ? {phase} : 'Pending'"},
        {
            "name": "mayRelaunch",
            "expression": f"!variables.isUpdate || ({paused} && (variables.phase == 'Suspended' || "
            "oldObject.?status.?attempt.orValue(0) == 0))",
        },
    ]


def change_validations() -> tuple[Validation, ...]:
    """The validations. The API server tells of the first that fails, so the one that explains most comes first."""
    return (*_names(), _terminal(), *map(_launch_field, LAUNCH_FIELDS))


def _names() -> tuple[Validation, ...]:
    name = "object.metadata.name"
    return (
        Validation(
            name="job-name",
            expression=f"variables.isUpdate || {name}.matches({text(JOB_NAME)})",
            message="metadata.name cannot name a Service and pods",
            message_expression=f"'metadata.name: ' + {name} + ' cannot name a Service and pods; use lower-case "
            "letters, digits and hyphens, a letter first, for example gpt3-1b3'",
        ),
        Validation(
            name="derived-names",
            # A job that is older than this rule can still be suspended, or given another policy.
            expression=f"(variables.isUpdate && {_unchanged('roles')}) || size({name}) <= variables.longestName",
            message=f"metadata.name is too long: pods' names must fit in {MAX_DNS_LABEL} characters",
            message_expression="'metadata.name: %s has %d characters; at most %d are allowed, so that every pod\\'s "
            f"name JOB-xxxxx-ROLE-INDEX-INCARNATION fits in {MAX_DNS_LABEL}; shorten the job\\'s or a role\\'s name'"
            f".format([{name}, size({name}), variables.longestName])",
        ),
    )


def _launch_field(field: str) -> Validation:
    say = "can change only while the job is suspended and has no pods"
    return Validation(
        name=f"launch-field-{field}",
        expression=f"variables.mayRelaunch || {_unchanged(field)}",
        message=f"spec.{field}: {say}",
        message_expression=f"'spec.{field}: {say}, but its phase is ' + variables.phase + '; set spec.suspend: true, "
        "wait for phase Suspended, change it, then set spec.suspend: false'",
    )


def _terminal() -> Validation:
    fields = [alias_of(TrainingJobSpec, name) for name in TrainingJobSpec.model_fields]
    same = " && ".join(_unchanged(field) for field in fields if field not in AFTER_THE_END)
    return Validation(
        name="terminal",
        expression=f"!(variables.phase in ['Succeeded', 'Failed']) || ({same})",
        message="spec: a job that has finished does not change",
        message_expression="'spec: the job has ' + variables.phase + ' and does not run again; only "
        f"{' and '.join(AFTER_THE_END)} can change. To run it again, create a job with another name'",
    )


def _unchanged(field: str) -> str:
    return f"oldObject.?spec.?{field} == object.?spec.?{field}"
