"""Builders: TrainingJobs in the words of a test."""

from __future__ import annotations

import copy
from typing import Any

from meshwright_api import names

Json = dict[str, Any]


def a_container(**fields: Any) -> Json:
    """A container named `trainer` with an image."""
    return {"name": "trainer", "image": "example.com/train:1", **fields}


def a_role(name: str = "worker", *, pod: Json | None = None, metadata: Json | None = None, **fields: Any) -> Json:
    """A role whose pods have one container; `pod` adds to the pod's spec, `metadata` to the template's."""
    template: Json = {"spec": {"containers": [a_container()], **(pod or {})}}
    if metadata is not None:
        template["metadata"] = metadata
    return {"name": name, "replicas": 2, "template": template, **fields}


def a_job(name: str = "job", namespace: str = "default", **spec: Any) -> Json:
    """A job that can be run, with one role of two pods."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"roles": [a_role()], **spec},
    }


def a_trainer(**fields: Any) -> Json:
    """A section for the built-in trainer with all that it must be told."""
    return {"model": {"name": "gpt3", "preset": "tiny"}, "data": {"source": "/data"}, "steps": 10, **fields}


def a_trained_job(role: Json | None = None, **fields: Any) -> Json:
    """A job with the built-in trainer in two pods, or in the given role; `fields` add to the trainer's section."""
    return a_job(roles=[role or {"name": "worker", "replicas": 2}], trainer=a_trainer(**fields))


def with_container(**fields: Any) -> Json:
    """A job whose container has these fields."""
    return a_job(roles=[a_role(pod={"containers": [a_container(**fields)]})])


def with_pod(**fields: Any) -> Json:
    """A job whose pods have these fields."""
    return a_job(roles=[a_role(pod=fields)])


def changed(job: Json, **spec: Any) -> Json:
    """A copy with other spec fields."""
    copied = copy.deepcopy(job)
    copied["spec"].update(copy.deepcopy(spec))
    return copied
