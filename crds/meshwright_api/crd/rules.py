"""The CEL rules of the CustomResourceDefinition: what types cannot say about a spec and about its changes.

A rule here speaks only of fields that the schema types; `policies` speaks of pod templates and unknown fields. Each
message names the field, its value, the limit and a value that works. Rules at the root are evaluated on every write,
also on the operator's own writes of `status`, so they let pass what did not change: an object that is older than a
rule must stay writable.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright_api import reserved
from meshwright_api.checks.features import FEATURES_LATER, Later
from meshwright_api.checks.semantics import JOB_NAME, NAME_OVERHEAD
from meshwright_api.keys import LIST, alias_of
from meshwright_api.names import MAX_DNS_LABEL
from meshwright_api.spec import MAX_PODS, VOLUME_SOURCES, TrainingJobSpec, Volume

LAUNCH_FIELDS = ("trainer", "roles", "volumes", "profile", "placement", "queue", "agent")
"""What pods are made from: changes only while the job is suspended and has no pods."""
AFTER_THE_END = ("ttlSecondsAfterFinished",)
"""What may still change in a job that has finished."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One entry of `x-kubernetes-validations`."""

    name: str
    """What tests and docs call it."""
    at: tuple[str, ...]
    """The object it belongs to, as a path from the root; `[]` for every item of a list."""
    rule: str
    """CEL; true if the object is in order. `self` is the object."""
    message: str
    """What is wrong, if the expression below cannot be evaluated."""
    expression: str = ""
    """CEL that makes the message."""
    field: str = ""
    """JSON path, from the object, of the field that is at fault."""
    forbidden: bool = False
    """Whether the field must not be there or not change, rather than have another value."""
    also_on_create: bool = False
    """For rules that speak of `oldSelf`: it is an optional, absent on creation."""

    def manifest(self) -> dict[str, Any]:
        """The entry as it stands in the schema."""
        entry: dict[str, Any] = {"rule": self.rule, "message": self.message}
        entry |= {"messageExpression": self.expression} if self.expression else {}
        entry |= {"fieldPath": self.field} if self.field else {}
        entry |= {"reason": "FieldValueForbidden"} if self.forbidden else {}
        entry |= {"optionalOldSelf": True} if self.also_on_create else {}
        return entry


def text(value: str) -> str:
    """A CEL string literal."""
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def texts(values: tuple[str, ...]) -> str:
    """A CEL list of string literals."""
    return f"[{', '.join(map(text, values))}]"


def rules() -> tuple[Rule, ...]:
    """All rules of the CustomResourceDefinition."""
    return (*_names(), *_changes(), *_sizes(), *_failure_rules(), *_volumes(), *map(_later, FEATURES_LATER))


def _names() -> tuple[Rule, ...]:
    unchanged = f"oldSelf.hasValue() && {unchanged_since('oldSelf.value()', 'roles')}"
    digits = f"(has(r.replicas) ? {_digits('r.replicas')} : 1)"
    longest = f"self.spec.roles.map(r, size(r.name) + {digits}).max()"
    some = "has(self.spec.roles) && size(self.spec.roles) > 0"
    limit = f"({MAX_DNS_LABEL - NAME_OVERHEAD} - ({some} ? {longest} : 0))"
    return (
        Rule(
            name="job-name",
            at=(),
            rule=f"oldSelf.hasValue() || self.metadata.name.matches({text(JOB_NAME)})",
            message="metadata.name cannot name a Service and pods",
            expression="'metadata.name: ' + self.metadata.name + ' cannot name a Service and pods; use lower-case "
            "letters, digits and hyphens, a letter first, for example gpt3-1b3'",
            also_on_create=True,
        ),
        Rule(
            name="derived-names",
            at=(),
            rule=f"({unchanged}) || size(self.metadata.name) <= {limit}",
            message=f"metadata.name is too long: pods' names must fit in {MAX_DNS_LABEL} characters",
            expression="'metadata.name: %s has %d characters; at most %d are allowed, so that every pod\\'s name "
            f"JOB-xxxxx-ROLE-INDEX-INCARNATION fits in {MAX_DNS_LABEL}; shorten the job\\'s or a role\\'s name'"
            f".format([self.metadata.name, size(self.metadata.name), {limit}])",
            also_on_create=True,
        ),
    )


def _digits(replicas: str) -> str:
    """CEL: digits of the highest index. Not `size(string(n))`: the API server cannot bound what that costs."""
    powers = [10**n for n in range(1, len(str(MAX_PODS - 1)))]
    return f"(1 + size({powers}.filter(power, {replicas} > power)))"


def there(path: str) -> str:
    """CEL: whether a field and all that it lies in are there. Optionals would be shorter, but hide what they cost."""
    steps = path.split(".")
    return " && ".join(f"has({'.'.join(steps[:end])})" for end in range(2, len(steps) + 1))


def _changes() -> tuple[Rule, ...]:
    phase = f"({there('oldSelf.status.phase')} ? oldSelf.status.phase : 'Pending')"
    paused = " && ".join(f"{there(field)} && {field}" for field in ("oldSelf.spec.suspend", "self.spec.suspend"))
    no_pods = f"({phase} == 'Suspended' || !({there('oldSelf.status.attempt')}) || oldSelf.status.attempt == 0)"
    fields = [alias_of(TrainingJobSpec, name) for name in TrainingJobSpec.model_fields]
    same = " && ".join(_unchanged(field) for field in fields if field not in AFTER_THE_END)
    launch = (
        Rule(
            name=f"launch-field-{field}",
            at=(),
            rule=f"{_unchanged(field)} || ({paused} && {no_pods})",
            message=f"spec.{field} can change only while the job is suspended and has no pods",
            expression=f"'spec.{field}: can change only while the job is suspended and has no pods, but its phase is '"
            f" + {phase} + '; set spec.suspend: true, wait for phase Suspended, change it, then set spec.suspend: "
            "false'",
            field=f".spec.{field}",
            forbidden=True,
        )
        for field in LAUNCH_FIELDS
    )
    finished = Rule(
        name="terminal",
        at=(),
        rule=f"!({phase} in ['Succeeded', 'Failed']) || ({same})",
        message="a job that has finished does not change",
        expression=f"'spec: the job has ' + {phase} + ' and does not run again; only "
        f"{' and '.join(AFTER_THE_END)} can change. To run it again, create a job with another name'",
        field=".spec",
        forbidden=True,
    )
    return (*launch, finished)


def _unchanged(field: str) -> str:
    return unchanged_since("oldSelf", field)


def unchanged_since(old: str, field: str) -> str:
    """CEL: whether a field of the spec is as it was."""
    was, is_ = f"(has({old}.spec) && has({old}.spec.{field}))", f"has(self.spec.{field})"
    return f"({was} == {is_} && (!{is_} || {old}.spec.{field} == self.spec.{field}))"


def _sizes() -> tuple[Rule, ...]:
    pods = "self.roles.map(r, has(r.replicas) ? r.replicas : 1).sum()"
    return (
        Rule(
            name="some-pod",
            at=("spec",),
            rule=f"!has(self.roles) || size(self.roles) == 0 || {pods} > 0",
            message="spec.roles: the job has 0 pods; give a role at least 1 replica. To pause a job set "
            "spec.suspend: true",
            field=".roles",
        ),
        Rule(
            name="pods-at-most",
            at=("spec",),
            rule=f"!has(self.roles) || {pods} <= {MAX_PODS}",
            message=f"spec.roles: the roles have more than {MAX_PODS} replicas in all",
            expression=f"'spec.roles: the roles have %d replicas in all; at most {MAX_PODS} are allowed'"
            f".format([{pods}])",
            field=".roles",
        ),
    )


def _failure_rules() -> tuple[Rule, ...]:
    known = "has(self.roles) && self.roles.exists(r, r.name == x.role)"
    lost = f"self.failurePolicy.rules.filter(x, has(x.role) && !({known}))"
    return (
        Rule(
            name="rule-matches-something",
            at=("spec", "failurePolicy", "rules", LIST),
            rule="(has(self.exitCodes) && size(self.exitCodes) > 0) || (has(self.reasons) && size(self.reasons) > 0)",
            message="spec.failurePolicy.rules: the rule matches nothing; give exitCodes or reasons, for example "
            "exitCodes: [3]",
        ),
        Rule(
            name="rule-of-known-role",
            at=("spec",),
            rule=f"!({there('self.failurePolicy.rules')}) || size({lost}) == 0",
            message="spec.failurePolicy.rules: the role is not in spec.roles",
            expression="'spec.failurePolicy.rules: there is no role %s; use the name of one of spec.roles'"
            f".format([{lost}[0].role])",
            field=".failurePolicy.rules",
        ),
    )


def _volumes() -> tuple[Rule, ...]:
    sources = [alias_of(Volume, name) for name in VOLUME_SOURCES]
    has = ", ".join(f"has(self.{source})" for source in sources)
    covers = f"self.mountPath == {text(reserved.MOUNT)} || self.mountPath.startsWith({text(reserved.MOUNT + '/')})"
    at = ("spec", "volumes", LIST)
    return (
        Rule(
            name="volume-source",
            at=at,
            rule=f"size([{has}].filter(x, x)) == 1",
            message="spec.volumes: a volume needs exactly one source, for example persistentVolumeClaim: "
            "{claimName: NAME}",
            expression="'spec.volumes: volume %s has %d sources but needs exactly one, for example "
            "persistentVolumeClaim: {claimName: NAME}'"
            f".format([self.name, size([{has}].filter(x, x))])",
        ),
        Rule(
            name="volume-path",
            at=at,
            rule="self.mountPath.startsWith('/') && !self.mountPath.contains(':')",
            message="spec.volumes: mountPath must be an absolute path without colons, for example /checkpoints",
            expression="'spec.volumes: mountPath ' + self.mountPath + ' is no absolute path without colons; use for "
            "example /checkpoints'",
            field=".mountPath",
        ),
        Rule(
            name="volume-path-reserved",
            at=at,
            rule=f"!({covers})",
            message=f"spec.volumes: mountPath {reserved.MOUNT} holds Meshwright's launch plan; mount elsewhere, for "
            "example at /data",
            field=".mountPath",
        ),
        Rule(
            name="volume-name-reserved",
            at=at,
            rule=f"!self.name.startsWith({text(reserved.NAME_PREFIX)})",
            message=f"spec.volumes: names that begin with {reserved.NAME_PREFIX} are Meshwright's; choose another, for "
            "example data",
            field=".name",
        ),
        Rule(
            name="volume-paths-differ",
            at=("spec", "volumes"),
            rule="self.all(v, self.exists_one(w, w.mountPath == v.mountPath))",
            message="spec.volumes: two volumes have the same mountPath",
            expression="'spec.volumes: mountPath %s is taken by two volumes; mount one of them elsewhere'"
            ".format([self.filter(v, !self.exists_one(w, w.mountPath == v.mountPath))[0].mountPath])",
        ),
    )


def _later(later: Later) -> Rule:
    """The rule that refuses a field of a later version; for a field of list items it belongs to the item."""
    split = later.path.index(LIST) + 1 if LIST in later.path else 0
    field = "".join(f".{step}" for step in later.path[split:])
    value = f"self{field}"
    works = f" || {value} in {texts(later.works)}" if later.works else ""
    return Rule(
        name=f"later-{'.'.join(later.path)}",
        at=("spec", *later.path[:split]),
        rule=f"!({there(value)}){works}",
        message=f"{later.name}: {later.say}",
        expression=f"{text(f'{later.name}: ')} + {value} + {text(f': {later.say}')}" if later.works else "",
        field=field,
        forbidden=True,
    )


def by_place(found: tuple[Rule, ...]) -> Mapping[tuple[str, ...], list[Rule]]:
    """Rules grouped by the object they belong to."""
    places: dict[tuple[str, ...], list[Rule]] = {}
    for rule in found:
        places.setdefault(rule.at, []).append(rule)
    return places
