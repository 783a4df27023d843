"""The ValidatingAdmissionPolicies: what the CustomResourceDefinition cannot say.

- `writer`: whoever writes a TrainingJob makes pods, so may do it only where pods may be created.
- `keys`: a key that no type knows is refused by name; the schema alone would keep it in silence.
- `changes`: names must leave room for what is derived from them, and what pods are made from changes only when there
  are none.
- `template`: what a pod template must leave to Meshwright; the schema does not type templates.

They run after the schema has been checked, so the parts of a template that `template.PodTemplate` types can be relied
on. A job that was stored before a policy came stays writable: policies look only at writes that change the spec.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from meshwright_api import reserved
from meshwright_api.crd.changes import change_validations, change_variables
from meshwright_api.crd.validation import Validation, text, texts
from meshwright_api.keys import LIST, KnownKeys, known_keys
from meshwright_api.names import GROUP, PLURAL

WRITER = f"{PLURAL}-writer.{GROUP}"
CHANGES = f"{PLURAL}-changes.{GROUP}"
KEYS = f"{PLURAL}-keys.{GROUP}"
TEMPLATE = f"{PLURAL}-template.{GROUP}"

CHANGES_SPEC = "request.operation == 'CREATE' || object.?spec != oldObject.?spec"
"""Without this, foreground deletion hangs for ever: the garbage collector updates metadata, and may not create pods."""


@dataclass(frozen=True, slots=True)
class Culprits:
    """A rule about templates as a CEL text that names what breaks it; empty if nothing does."""

    name: str
    """What tests and docs call it; also the policy's variable that holds the text."""
    found: str
    """CEL: the culprits, as one string."""
    say: str
    """What follows them in the message."""


def policies() -> list[dict[str, Any]]:
    """The manifests: each policy and its binding."""
    writer = _policy(WRITER, writer_validations(), resources=(PLURAL, f"{PLURAL}/scale"))
    keys = _policy(KEYS, key_validations(), resources=(PLURAL,))
    changes = _policy(CHANGES, change_validations(), resources=(PLURAL,), variables=change_variables())
    template = _policy(TEMPLATE, template_validations(), resources=(PLURAL,), variables=_template_variables())
    return [document for policy in (writer, keys, changes, template) for document in (policy, _binding(policy))]


def writer_validations() -> tuple[Validation, ...]:
    """Validations of the policy `writer`."""
    return (
        Validation(
            name="may-create-pods",
            expression="authorizer.group('').resource('pods').namespace(request.namespace).check('create').allowed()",
            message="whoever writes a TrainingJob must be allowed to create pods in its namespace",
            message_expression="request.userInfo.username + ' may not create pods in namespace ' + request.namespace + "
            "', and a TrainingJob makes pods; ask for a role that may, for example: kubectl create rolebinding "
            "trainingjobs -n ' + request.namespace + ' --clusterrole=meshwright-submitter --user=' + "
            "request.userInfo.username",
            reason="Forbidden",
        ),
    )


def key_validations() -> tuple[Validation, ...]:
    """Validations of the policy `keys`, one for each object of the spec."""
    return tuple(_known(known) for known in known_keys())


def _known(known: KnownKeys) -> Validation:
    name = ".".join(("spec", *known.path)).replace(f".{LIST}", LIST)
    unknown = _over("object.?spec", known.path, f"%s.filter(k, !(k in {texts(known.keys)})).join(', ')")
    say = f"no such field; known here: {', '.join(known.keys)}"
    return Validation(
        name=name,
        expression=f"{unknown} == ''",
        message=f"{name}: {say}",
        message_expression=f"{text(name + '.')} + {unknown} + {text(': ' + say)}",
    )


def _over(value: str, path: tuple[str, ...], inner: str, depth: int = 0) -> str:
    """CEL: the string `inner % X` for the object X at a path, over all items of lists; empty where there is none."""
    fields = path[: path.index(LIST)] if LIST in path else path
    optional = value + "".join(f".?{field}" for field in fields)
    if LIST not in path:
        return inner % (f"{optional}.orValue({{}})" if "?" in optional else value)
    item = f"i{depth}"
    rest = _over(item, path[len(fields) + 1 :], inner, depth + 1)
    return f"{optional}.orValue([]).map({item}, {rest}).filter(s, s != '').join(', ')"


def template_validations() -> tuple[Validation, ...]:
    """Validations of the policy `template`."""
    return tuple(
        Validation(
            name=rule.name,
            expression=f"variables.{rule.name} == ''",
            message=f"spec.roles[].template: {rule.say}",
            message_expression=f"'spec.roles[].template: ' + variables.{rule.name} + {text(' ' + rule.say)}",
        )
        for rule in _template_rules()
    )


def _template_variables() -> list[dict[str, str]]:
    roles = {"name": "roles", "expression": "object.?spec.?roles.orValue([])"}
    return [roles, *({"name": rule.name, "expression": rule.found} for rule in _template_rules())]


_POD = "r.?template.?spec"
_CONTAINERS = f"{_POD}.?containers.orValue([])"
_ALL_CONTAINERS = f"({_CONTAINERS} + {_POD}.?initContainers.orValue([]))"
_TRAINED = f"{_CONTAINERS}.filter(c, size({_CONTAINERS}) == 1 || c.name == {text(reserved.TRAINER)})"
_VOLUMES = "object.?spec.?volumes.orValue([])"


def _roles(inner: str) -> str:
    """CEL: `role NAME: TEXT` for every role whose text is not empty."""
    named = f"[{inner}].filter(s, s != '').map(s, 'role ' + r.name + ': ' + s).join('')"
    return f"variables.roles.map(r, {named}).filter(s, s != '').join('; ')"


def _in_containers(inner: str, containers: str = _ALL_CONTAINERS) -> str:
    """CEL: what `inner` finds in a role's containers `c`, joined."""
    return f"{containers}.map(c, {inner}).filter(s, s != '').join(', ')"


def _names(items: str, condition: str, show: str = "x.name") -> str:
    """CEL: the names of those items `x` for which the condition holds, joined."""
    return f"{items}.filter(x, {condition}).map(x, {show}).join(', ')"


def _template_rules() -> tuple[Culprits, ...]:
    return (*_container_rules(), *_pod_rules(), *_agreement_rules())


def _container_rules() -> tuple[Culprits, ...]:
    prefixes = "|".join(reserved.ENV_PREFIXES)
    env = text(f"^(({'|'.join(reserved.ENV)})$|{prefixes})")
    mount = f"x.mountPath == {text(reserved.MOUNT)} || x.mountPath.startsWith({text(reserved.MOUNT + '/')})"
    own = f"x.name.startsWith({text(reserved.NAME_PREFIX)})"
    empty = _roles(f"size({_CONTAINERS}) == 0 ? 'no container' : ''")
    named = f"{_ALL_CONTAINERS} + {_POD}.?volumes.orValue([])"
    return (
        Culprits(
            "noContainer",
            f"(size(variables.roles) == 0 ? 'there is no role' : {empty})",
            "- give a container with an image, for example spec.containers: [{name: trainer, image: IMAGE, command: "
            "[python, train.py]}]",
        ),
        Culprits(
            "whichTrains",
            _roles(
                f"size({_CONTAINERS}) > 1 && size({_TRAINED}) == 0 ? {_names(_CONTAINERS, 'true')} : ''",
            ),
            f"- it is not clear which of these containers trains; name that one {reserved.TRAINER}",
        ),
        Culprits(
            "noImage",
            _roles(_names(_ALL_CONTAINERS, "x.?image.orValue('') == ''")),
            "without an image; give one, for example pytorch/pytorch:latest",
        ),
        Culprits(
            "reservedEnv",
            _roles(_in_containers(_names("c.?env.orValue([])", f"x.name.matches({env})"))),
            "is Meshwright's to set in env; leave it out, it will be right",
        ),
        Culprits(
            "reservedMount",
            _roles(_in_containers(_names("c.?volumeMounts.orValue([])", mount, "x.mountPath"))),
            "holds Meshwright's launch plan; mount elsewhere, for example at /data",
        ),
        Culprits(
            "reservedName",
            _roles(_names(f"({named})", own)),
            f"- names that begin with {reserved.NAME_PREFIX} are Meshwright's; choose another, for example helper",
        ),
    )


def _pod_rules() -> tuple[Culprits, ...]:
    labels, annotations = (
        f"r.?template.?metadata.?{kind}.orValue({{}}).map(k, k)" for kind in ("labels", "annotations")
    )
    keys = f"({labels} + {annotations})"
    fields = f"{texts(tuple(reserved.POD_FIELDS))}.filter(f, f in {_POD}.orValue({{}})).join(', ')"
    why = "; ".join(f"{field}: {reason}" for field, reason in reserved.POD_FIELDS.items())
    return (
        Culprits(
            "reservedLabel",
            _roles(f"{keys}.filter(k, k.startsWith({text(reserved.LABEL_PREFIX)})).join(', ')"),
            "is Meshwright's to set in metadata; leave it out or use another prefix, for example example.com/",
        ),
        Culprits(
            "restartPolicy",
            _roles(f"{_POD}.?restartPolicy.orValue('Never') == 'Never' ? '' : {_POD}.?restartPolicy.orValue('')"),
            "is not allowed as restartPolicy, since a gang restarts as a whole; use Never or leave it out, and set "
            "failurePolicy.maxRestarts",
        ),
        Culprits("reservedField", _roles(fields), f"must be left out ({why})"),
    )


def _agreement_rules() -> tuple[Culprits, ...]:
    limit = f"c.?resources.?limits[?{text(reserved.GPU)}]"
    value = f"dyn({limit}.orValue(''))"  # dyn, or the type of '' decides which string() is called
    as_text = f"(type({value}) == string ? {value} : type({value}) == int ? string({value}) : 'no quantity')"
    same = f"isQuantity({as_text}) && quantity({as_text}).compareTo(quantity(string(r.gpusPerPod))) == 0"
    gpus = f"!has(r.gpusPerPod) || !{limit}.hasValue() || ({same}) ? '' : {as_text}"
    queue = "object.?spec.?queue.?priorityClassName"
    own = f"{_POD}.?priorityClassName"
    mounted = f"{_TRAINED}.exists(c, c.?volumeMounts.orValue([]).exists(m, m.mountPath == x.mountPath))"
    named = f"{_POD}.?volumes.orValue([]).exists(v, v.name == x.name)"
    return (
        Culprits(
            "gpus",
            _roles(_in_containers(gpus, _TRAINED)),
            f"as limit {reserved.GPU} disagrees with gpusPerPod; leave one of them out",
        ),
        Culprits(
            "priorityClass",
            _roles(f"{queue}.hasValue() && {own}.hasValue() && {queue} != {own} ? {own}.orValue('') : ''"),
            "as priorityClassName disagrees with spec.queue.priorityClassName; leave one of them out",
        ),
        Culprits(
            "volumeNames",
            _roles(_names(_VOLUMES, named)),
            "is a volume of the template and of spec.volumes; rename one of them",
        ),
        Culprits(
            "volumePaths",
            _roles(_names(_VOLUMES, mounted, "x.mountPath")),
            "is mounted by the template and by spec.volumes; mount one of them elsewhere",
        ),
    )


def _policy(
    name: str,
    validations: tuple[Validation, ...],
    *,
    resources: tuple[str, ...],
    variables: list[dict[str, str]] | None = None,
) -> dict[str, Any]:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {
                "resourceRules": [
                    {
                        "apiGroups": [GROUP],
                        "apiVersions": ["*"],
                        "operations": ["CREATE", "UPDATE"],
                        "resources": list(resources),
                    }
                ]
            },
            "matchConditions": [{"name": "changes-spec", "expression": CHANGES_SPEC}],
            **({"variables": variables} if variables else {}),
            "validations": [validation.manifest() for validation in validations],
        },
    }


def _binding(policy: dict[str, Any]) -> dict[str, Any]:
    name = policy["metadata"]["name"]
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
