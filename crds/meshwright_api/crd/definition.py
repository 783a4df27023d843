"""The CustomResourceDefinition of TrainingJob."""

from __future__ import annotations

from typing import Any

from meshwright_api.crd.rules import by_place, rules
from meshwright_api.crd.schema import Schema, spec_schema, status_schema
from meshwright_api.keys import LIST
from meshwright_api.names import GROUP, KIND, PLURAL, VERSION

MAX_BYTES = 262_144
"""A larger object cannot be applied by `kubectl apply`, which keeps a copy in an annotation of this size."""

COLUMNS: tuple[dict[str, Any], ...] = (
    {"name": "Phase", "type": "string", "jsonPath": ".status.phase", "description": "Where the job is in its life"},
    {"name": "Mesh", "type": "string", "jsonPath": ".status.mesh", "description": "The effective mesh"},
    {"name": "Pods", "type": "string", "jsonPath": ".status.ready", "description": "Running pods of all pods"},
    {"name": "Step", "type": "integer", "jsonPath": ".status.progress.step", "description": "Steps done"},
    {
        "name": "Goodput",
        "type": "integer",
        "jsonPath": ".status.goodput.percent",
        "description": "Percent of the active time spent on steps that were kept",
    },
    {"name": "Restarts", "type": "integer", "jsonPath": ".status.restarts", "description": "Restarts in all"},
    {
        "name": "Loss",
        "type": "string",
        "priority": 1,
        "jsonPath": ".status.progress.loss",
        "description": "Training loss of the last logged step",
    },
    {
        "name": "Reason",
        "type": "string",
        "priority": 1,
        "jsonPath": ".status.reason",
        "description": "Why the job is in this phase",
    },
    {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp", "description": "Time since creation"},
)
"""What `kubectl get tj` shows; columns of priority 1 with `-o wide`."""


def custom_resource_definition() -> dict[str, Any]:
    """The manifest."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{PLURAL}.{GROUP}",
            # Uninstalling the chart must not delete everybody's jobs.
            "annotations": {"helm.sh/resource-policy": "keep"},
        },
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": KIND.lower(),
                "shortNames": ["tj"],
                "categories": ["all", "training"],
            },
            "versions": [_version()],
        },
    }


def _version() -> dict[str, Any]:
    return {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {
            "status": {},
            # Not a path through spec.roles: the scale subresource cannot look into lists, and says so to nobody.
            "scale": {"specReplicasPath": ".spec.elastic.replicas", "statusReplicasPath": ".status.pods.running"},
        },
        "additionalPrinterColumns": list(COLUMNS),
        "schema": {"openAPIV3Schema": _schema()},
    }


def _schema() -> Schema:
    root: Schema = {
        "type": "object",
        "description": "Large-model training as a gang of pods that is placed, started, watched and restarted as one.",
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of the schema of this object."},
            "kind": {"type": "string", "description": f"Always {KIND}."},
            # True of every name; said so that the API server can bound the cost of rules about names.
            "metadata": {"type": "object", "properties": {"name": {"type": "string", "maxLength": 253}}},
            "spec": {**spec_schema(), "description": "What is asked for."},
            "status": {**status_schema(), "description": "What the operator knows; written only by it."},
        },
    }
    for path, found in by_place(rules()).items():
        _at(root, path)["x-kubernetes-validations"] = [rule.manifest() for rule in found]
    return root


def _at(schema: Schema, path: tuple[str, ...]) -> Schema:
    for step in path:
        schema = schema["items"] if step == LIST else schema["properties"][step]
    return schema
