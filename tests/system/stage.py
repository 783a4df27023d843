"""What a test says to the cluster and asks of it. Asks the API server, never the operator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any, TypeVar

from devcluster.cluster import Cluster
from devcluster.errors import ApiError
from meshwright_api import names

Json = dict[str, Any]
T = TypeVar("T")

PATIENCE = 60.0
EXIT = "fake.devcluster/exit"
RUN_SECONDS = "fake.devcluster/run-seconds"
LOST = "fake.devcluster/lost"
FAKE_NODES = {"devcluster.test/nodes": "of-the-system-tests"}
"""Labels of the nodes that these tests have; others may be in the cluster."""


def eventually(ask: Callable[[], T], what: str, seconds: float = PATIENCE) -> T:
    """The first true answer; the test fails if none comes in time."""
    deadline = time.monotonic() + seconds
    while True:
        answer = ask()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}; last answer: {answer!r}"
        time.sleep(0.1)


def a_template(annotations: dict[str, str] | None = None, cpu: str = "100m", **pod: Any) -> Json:
    """A pod template for fake nodes: runs until told otherwise."""
    container = {"name": "trainer", "image": "none", "command": ["train"], "resources": {"requests": {"cpu": cpu}}}
    return {"metadata": {"annotations": annotations or {}}, "spec": {"containers": [container], **pod}}


def a_job(name: str, *, workers: int = 2, template: Json | None = None, **spec: Any) -> Json:
    """A TrainingJob of that many workers."""
    policy = {"evidenceSeconds": 1, **spec.pop("failurePolicy", {})}
    roles = spec.pop("roles", [{"name": "worker", "replicas": workers, "template": template or a_template()}])
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": name},
        "spec": {"roles": roles, "failurePolicy": policy, **spec},
    }


class Stage:
    """One namespace of a cluster on which an operator works."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.cluster = cluster
        self.namespace = namespace

    # Jobs

    def jobs_path(self, name: str = "") -> str:
        """Path of the jobs, or of one."""
        path = f"/apis/{names.API_VERSION}/namespaces/{self.namespace}/{names.PLURAL}"
        return f"{path}/{name}" if name else path

    def create(self, job: Json) -> str:
        """Creates the job; returns its UID."""
        return str(self.cluster.request("POST", self.jobs_path(), job)["metadata"]["uid"])

    def job(self, name: str) -> Json:
        """The job as it is now."""
        return dict(self.cluster.request("GET", self.jobs_path(name)))

    def status(self, name: str) -> Json:
        """The job's status; empty before the first."""
        return dict(self.job(name).get("status") or {})

    def change(self, name: str, **spec: Any) -> None:
        """Changes fields of the job's spec, as a user with `kubectl patch` would."""
        self.cluster.request("PATCH", self.jobs_path(name), {"spec": spec})

    def delete(self, name: str, propagation: str = "Background") -> None:
        """Deletes the job."""
        self.cluster.request("DELETE", self.jobs_path(name), {"propagationPolicy": propagation})

    def wait_phase(self, name: str, phase: str, seconds: float = PATIENCE, **status: Any) -> Json:
        """Waits until the job is in this phase, and its status has these further fields; returns the status."""

        def there() -> Json | None:
            now = self.status(name)
            return now if now.get("phase") == phase and all(now.get(k) == v for k, v in status.items()) else None

        try:
            return eventually(there, f"{name} is {phase} {status or ''}", seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {json.dumps(self.status(name))}") from None

    def wait_progress(self, name: str, step: int, attempt: int = 1) -> Json:
        """Waits until an attempt of the job is said to have done that many steps; returns the status."""

        def there() -> Json | None:
            now = self.status(name)
            progress = now.get("progress") or {}
            return now if progress.get("attempt") == attempt and progress.get("step", 0) >= step else None

        try:
            return eventually(there, f"{name} has done {step} steps")
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {json.dumps(self.status(name))}") from None

    def condition(self, name: str, kind: str) -> Json:
        """The condition of that type; empty if there is none."""
        conditions = self.status(name).get("conditions") or []
        return next((dict(c) for c in conditions if c["type"] == kind), {})

    # Pods

    def pods(self, **labels: str) -> list[Json]:
        """The namespace's pods."""
        items = self.cluster.request("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return [p for p in items if all((p["metadata"].get("labels") or {}).get(k) == v for k, v in labels.items())]

    def gang(self, incarnation: int) -> list[Json]:
        """The pods of one incarnation, by role and index."""
        mine = self.pods(**{names.LABEL_INCARNATION: str(incarnation)})
        return sorted(mine, key=lambda p: (p["metadata"]["labels"][names.LABEL_ROLE], index_of(p)))

    def end(self, pod: Json, how: str = "1") -> bool:
        """Ends a fake pod: `1`, `137:OOMKilled`, `1:Error:last words`; False if the pod is gone already."""
        path = f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        try:
            self.cluster.request("PATCH", path, {"metadata": {"annotations": {EXIT: how}}})
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def delete_pod(self, pod: Json) -> None:
        """Deletes a pod as a user would."""
        self.cluster.request("DELETE", f"/api/v1/namespaces/{self.namespace}/pods/{pod['metadata']['name']}")

    # The audit log

    def creates(self, job_uid: str) -> list[tuple[str, str, str]]:
        """Every successful create of a pod of the job: (role, index, incarnation), in order."""
        found = []
        for line in self.cluster.audit_log.read_text().splitlines():
            event = json.loads(line)
            reference = event.get("objectRef") or {}
            if event.get("verb") != "create" or reference.get("resource") != "pods" or reference.get("subresource"):
                continue
            if (event.get("responseStatus") or {}).get("code") != 201:
                continue
            labels = (event.get("requestObject") or {}).get("metadata", {}).get("labels") or {}
            if labels.get(names.LABEL_JOB_UID) == job_uid:
                found.append((labels[names.LABEL_ROLE], labels[names.LABEL_INDEX], labels[names.LABEL_INCARNATION]))
        return found

    def status_writes(self, name: str) -> int:
        """Successful writes of the job's status."""
        count = 0
        for line in self.cluster.audit_log.read_text().splitlines():
            event = json.loads(line)
            reference = event.get("objectRef") or {}
            ours = reference.get("namespace") == self.namespace and reference.get("name") == name
            is_status = reference.get("resource") == names.PLURAL and reference.get("subresource") == "status"
            count += ours and is_status and (event.get("responseStatus") or {}).get("code") == 200
        return count


def index_of(pod: Json) -> int:
    """The pod's index in its role."""
    return int(pod["metadata"]["labels"][names.LABEL_INDEX])
