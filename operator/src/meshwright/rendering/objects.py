"""What every object of a gang has in common, and the headless Service."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from meshwright_api import names
from meshwright_api.job import Metadata


def owned(job: Metadata, name: object) -> dict[str, Any]:
    """Metadata of an object that lives and dies with the job."""
    owner = {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return {"name": name, "namespace": job.namespace, "ownerReferences": [owner]}


def labels(job: Metadata, incarnation: int | None = None) -> dict[str, str]:
    """Labels by which people and selectors find the objects of a job, or of one incarnation."""
    common = {names.LABEL_JOB: job.name, names.LABEL_JOB_UID: job.uid, "app.kubernetes.io/managed-by": "meshwright"}
    return common if incarnation is None else {**common, names.LABEL_INCARNATION: str(incarnation)}


def variables_map(job: Metadata, incarnation: int, variables: Mapping[str, str]) -> dict[str, Any]:
    """The ConfigMap with a profile's variables; like the plan it goes when a newer incarnation's is there."""
    metadata = owned(job, names.variables_name(job.name, job.uid, incarnation))
    metadata["labels"] = labels(job, incarnation) | {names.LABEL_COMPONENT: "fabric"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": dict(variables)}


def service(job: Metadata) -> dict[str, Any]:
    """The headless Service that gives every pod of the job a name; one for all incarnations.

    Names must resolve before pods are ready: ranks become ready only after they have found each other.
    """
    metadata = owned(job, names.gang_name(job.name, job.uid))
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata | {"labels": labels(job)},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {names.LABEL_JOB_UID: job.uid},
        },
    }
