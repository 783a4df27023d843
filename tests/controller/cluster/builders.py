"""Objects as the API server has them, with as little as a test cares for."""

from __future__ import annotations

from typing import Any

from meshwright_api import names

Json = dict[str, Any]

JOB, JOB_UID = "gpt", "0f667faf-f024-4f96-9660-ddbef7acb4ea"


def a_pod(
    name: str = "web", *, namespace: str = "team", uid: str = "", node: str = "", cpu: str = "", **status: Any
) -> Json:
    """A foreign pod."""
    container: Json = {"name": "main", "image": "x"}
    if cpu:
        container["resources"] = {"requests": {"cpu": cpu}}
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": uid or f"uid-{name}"},
        "spec": {"containers": [container]} | ({"nodeName": node} if node else {}),
        "status": status,
    }


def a_member(
    index: int = 0,
    *,
    incarnation: int = 1,
    role: str = "worker",
    job: str = JOB,
    uid: str = JOB_UID,
    node: str = "n1",
    **status: Any,
) -> Json:
    """A pod of a gang."""
    name = names.pod_name(job, uid, role, index, incarnation)
    pod = a_pod(name, node=node, **status)
    pod["spec"]["containers"][0]["name"] = "trainer"
    pod["metadata"] |= {
        "creationTimestamp": "2026-11-29T12:00:00Z",
        "labels": {
            names.LABEL_JOB_UID: uid,
            names.LABEL_ROLE: role,
            names.LABEL_INDEX: str(index),
            names.LABEL_INCARNATION: str(incarnation),
        },
        "ownerReferences": [
            {"apiVersion": names.API_VERSION, "kind": names.KIND, "name": job, "uid": uid, "controller": True}
        ],
    }
    return pod


def container(state: str, *, name: str = "trainer", **fields: Any) -> Json:
    """The status of a container: `container("terminated", exitCode=1)`."""
    return {"name": name, "state": {state: fields}, "imageID": "docker.io/x@sha256:1"}


def a_node(name: str = "n1", *, ready: bool = True, since: str = "2026-11-29T12:00:00Z", cpu: str = "8") -> Json:
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown", "lastTransitionTime": since}],
        },
    }
