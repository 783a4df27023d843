"""The CEL rules of the CustomResourceDefinition: what types cannot say about a spec.

A rule here lies in `spec` and speaks only of fields that the schema types; `policies` speaks of names, of changes, of
pod templates and of unknown fields. Below the root the API server lets pass what a write does not change. At the root
a rule is evaluated on every write, also of `status` or of a finalizer, and would lock objects that are older than it;
so the only one there looks at creations. Each message names the value, the limit and a value that works; the API
server puts the field before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from meshwright_api import reserved
from meshwright_api.checks.features import FEATURES_LATER
from meshwright_api.checks.later import Later
from meshwright_api.crd.validation import text
from meshwright_api.keys import LIST, alias_of
from meshwright_api.spec import MAX_PODS, VOLUME_SOURCES, Volume


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
    only_on_create: bool = False
    """For a rule that lets updates pass: `oldSelf` is an optional, absent on creation."""

    def manifest(self) -> dict[str, Any]:
        """The entry as it stands in the schema."""
        entry: dict[str, Any] = {"rule": self.rule, "message": self.message}
        entry |= {"messageExpression": self.expression} if self.expression else {}
        entry |= {"fieldPath": self.field} if self.field else {}
        entry |= {"reason": "FieldValueForbidden"} if self.forbidden else {}
        entry |= {"optionalOldSelf": True} if self.only_on_create else {}
        return entry


_SPEC = Rule(
    name="spec",
    at=(),
    rule="oldSelf.hasValue() || has(self.spec)",
    message="is missing; give at least one role with a container and an image",
    only_on_create=True,
)
"""Instead of `required`, which would lock stored objects without a spec."""


def rules() -> tuple[Rule, ...]:
    """All rules of the CustomResourceDefinition."""
    placement = *_placement(), *_role_wishes()
    return (_SPEC, *_sizes(), *_failure_rules(), *placement, *_volumes(), *_trainer(), *map(_later, FEATURES_LATER))


def there(path: str) -> str:
    """CEL: whether a field and all that it lies in are there. Optionals would be shorter, but hide what they cost."""
    steps = path.split(".")
    return " && ".join(f"has({'.'.join(steps[:end])})" for end in range(2, len(steps) + 1))


def covered(path: str) -> str:
    """CEL: whether a mount path would cover one of Meshwright's folders."""
    return " || ".join(f"{path} == {text(m)} || {path}.startsWith({text(f'{m}/')})" for m in reserved.MOUNTS)


def _sizes() -> tuple[Rule, ...]:
    pods = "self.roles.map(r, has(r.replicas) ? r.replicas : 1).sum()"
    return (
        Rule(
            name="some-pod",
            at=("spec",),
            rule=f"!has(self.roles) || size(self.roles) == 0 || {pods} > 0",
            message="the job has 0 pods; give a role at least 1 replica. To pause a job set spec.suspend: true",
            field=".roles",
        ),
        Rule(
            name="pods-at-most",
            at=("spec",),
            rule=f"!has(self.roles) || {pods} <= {MAX_PODS}",
            message=f"the roles have more than {MAX_PODS} replicas in all",
            expression=f"'the roles have %d replicas in all; at most {MAX_PODS} are allowed'.format([{pods}])",
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
            message="the rule matches nothing; give exitCodes or reasons, for example exitCodes: [3]",
        ),
        Rule(
            name="rule-of-known-role",
            at=("spec",),
            rule=f"!({there('self.failurePolicy.rules')}) || size({lost}) == 0",
            message="the role is not in spec.roles",
            expression=f"'there is no role %s; use the name of one of spec.roles'.format([{lost}[0].role])",
            field=".failurePolicy.rules",
        ),
    )


def _placement() -> tuple[Rule, ...]:
    blind = "self.placement.constraints.filter(c, c.axis != 'pods')"
    return (
        Rule(
            name="placement-axis-of-known-mesh",
            at=("spec",),
            rule=f"has(self.trainer) || !({there('self.placement.constraints')}) || size({blind}) == 0",
            message="without spec.trainer the mesh is not known; use axis: pods, which is all pods of the job",
            field=".placement.constraints",
        ),
    )


def _role_wishes() -> tuple[Rule, ...]:
    known = "r.near != r.name && self.roles.exists(o, o.name == r.near)"
    lost = f"self.roles.filter(r, has(r.near) && !({known}))"
    return (
        Rule(
            name="near-another-role",
            at=("spec",),
            rule=f"!has(self.roles) || size({lost}) == 0",
            message="roles[].near must name another role of the job",
            expression=f"'near: there is no other role %s; use the name of another one'.format([{lost}[0].near])",
            field=".roles",
        ),
        Rule(
            name="spread-of-own-image",
            at=("spec",),
            rule="!has(self.trainer) || !has(self.roles) || !self.roles.exists(r, has(r.spread))",
            message="spread is for your own image; with spec.trainer use spec.placement.spread, which keeps replicas "
            "whole",
            field=".roles",
        ),
    )


def _volumes() -> tuple[Rule, ...]:
    sources = [alias_of(Volume, name) for name in VOLUME_SOURCES]
    has = ", ".join(f"has(self.{source})" for source in sources)
    covers = covered("self.mountPath")
    kept = "is Meshwright's; mount elsewhere, for example at /data"
    ours = f"names that begin with {reserved.NAME_PREFIX} are Meshwright's; choose another, for example data"
    at = ("spec", "volumes", LIST)
    return (
        Rule(
            name="volume-source",
            at=at,
            rule=f"size([{has}].filter(x, x)) == 1",
            message="a volume needs exactly one source, for example persistentVolumeClaim: {claimName: NAME}",
            expression="'volume %s has %d sources but needs exactly one, for example "
            "persistentVolumeClaim: {claimName: NAME}'"
            f".format([self.name, size([{has}].filter(x, x))])",
        ),
        Rule(
            name="volume-path",
            at=at,
            rule="self.mountPath.startsWith('/') && !self.mountPath.contains(':')",
            message="mountPath must be an absolute path without colons, for example /checkpoints",
            expression="'mountPath ' + self.mountPath + ' is no absolute path without colons; use for "
            "example /checkpoints'",
            field=".mountPath",
        ),
        Rule(
            name="volume-path-reserved",
            at=at,
            rule=f"!({covers})",
            message=f"the folder {kept}",
            expression=f"self.mountPath + {text(f' {kept}')}",
            field=".mountPath",
        ),
        Rule(
            name="volume-name-reserved",
            at=at,
            rule=f"!self.name.startsWith({text(reserved.NAME_PREFIX)})",
            message=ours,
            expression=f"self.name + {text(f': {ours}')}",
            field=".name",
        ),
        Rule(
            name="volume-paths-differ",
            at=("spec", "volumes"),
            rule="self.all(v, self.exists_one(w, w.mountPath == v.mountPath))",
            message="two volumes have the same mountPath",
            expression="'mountPath %s is taken by two volumes; mount one of them elsewhere'"
            ".format([self.filter(v, !self.exists_one(w, w.mountPath == v.mountPath))[0].mountPath])",
        ),
    )


def _trainer() -> tuple[Rule, ...]:
    """What the built-in trainer must be told. Whether its parts agree is the controller's to check: CEL cannot count
    processes that follow from limits in pod templates."""
    at = ("spec", "trainer")
    sources = "has(self.data.source) || (has(self.data.sources) && size(self.data.sources) > 0)"
    return (
        Rule(
            name="trainer-steps",
            at=at,
            rule="has(self.steps)",
            message="steps is missing; say how long to train, for example steps: 1000",
            field=".steps",
        ),
        Rule(
            name="trainer-model",
            at=at,
            rule="has(self.model) && has(self.model.name) != has(self.model.factory)",
            message="the model needs either a name or a factory, for example {name: gpt3, preset: tiny}",
            field=".model",
        ),
        Rule(
            name="trainer-data",
            at=at,
            rule=f"has(self.data) && ({sources}) != has(self.data.factory)",
            message="needs either a source, or sources, or a factory, for example {source: /data/corpus, format: Text}",
            field=".data",
        ),
        Rule(
            name="trainer-code",
            at=(*at, "code"),
            rule="has(self.configMap) != has(self.path)",
            message="needs either a configMap or a path, for example {configMap: my-model}",
        ),
        Rule(
            name="trainer-resume-from",
            at=(*at, "checkpoint"),
            rule="!has(self.resume) || self.resume != 'From' || has(self.resumeFrom)",
            message="is missing; resume: From needs the path of a checkpoint",
            field=".resumeFrom",
        ),
        Rule(
            name="trainer-init-path",
            at=(*at, "model", "init"),
            rule="!has(self.from) || !self.from.startsWith('job/')",
            message="naming a job is not part of this version; give the path of a checkpoint",
            expression="self.from + ': naming a job is not part of this version; give the path of a checkpoint'",
            field=".from",
        ),
        Rule(
            name="trainer-in-one-role",
            at=("spec",),
            rule="!has(self.trainer) || !has(self.roles) || size(self.roles) <= 1",
            message="the built-in trainer runs in one role in this version; leave all but one out",
            field=".roles",
        ),
    )


def _later(later: Later) -> Rule:
    """The rule that refuses a field of a later version; it belongs to the object that would hold the field."""
    *above, key = later.path
    values = ", ".join(text(value) if isinstance(value, str) else str(value) for value in later.works)
    works = f" || self.{key} in [{values}]" if later.works else ""
    return Rule(
        name=f"later-{'.'.join(later.path)}",
        at=("spec", *above),
        rule=f"!has(self.{key}){works}",
        message=later.say,
        # A number as text would cost more than a rule may, since CEL takes it to be of any length.
        expression=f"self.{key} + {text(f': {later.say}')}" if later.words else "",
        field=f".{key}",
        forbidden=True,
    )


def by_place(found: tuple[Rule, ...]) -> Mapping[tuple[str, ...], list[Rule]]:
    """Rules grouped by the object they belong to."""
    places: dict[tuple[str, ...], list[Rule]] = {}
    for rule in found:
        places.setdefault(rule.at, []).append(rule)
    return places
