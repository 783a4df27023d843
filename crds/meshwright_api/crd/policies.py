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

from typing import Any

from meshwright_api.crd.changes import change_validations, change_variables
from meshwright_api.crd.template_rules import template_validations, template_variables
from meshwright_api.crd.validation import Validation, text, texts
from meshwright_api.keys import LIST, KnownKeys, known_keys
from meshwright_api.names import GROUP, PLURAL

WRITER = f"{PLURAL}-writer.{GROUP}"
CHANGES = f"{PLURAL}-changes.{GROUP}"
KEYS = f"{PLURAL}-keys.{GROUP}"
TEMPLATE = f"{PLURAL}-template.{GROUP}"

CHANGES_SPEC = "request.operation == 'CREATE' || object.?spec != oldObject.?spec"
"""Without this, foreground deletion hangs for ever: the garbage collector updates metadata, and may not create pods."""


def policies() -> list[dict[str, Any]]:
    """The manifests: each policy and its binding."""
    writer = _policy(WRITER, writer_validations(), resources=(PLURAL, f"{PLURAL}/scale"))
    keys = _policy(KEYS, key_validations(), resources=(PLURAL,))
    changes = _policy(CHANGES, change_validations(), resources=(PLURAL,), variables=change_variables())
    template = _policy(TEMPLATE, template_validations(), resources=(PLURAL,), variables=template_variables())
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
