"""What may change when (K71: a new object is compared with the old one, not with itself; K47: suspending by apply)."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from meshwright_api.crd.changes import LAUNCH_FIELDS
from meshwright_api.keys import alias_of
from meshwright_api.spec import TrainingJobSpec
from tests.api.client import Client, job_path
from tests.api.jobs import Json, a_job, a_role, a_trained_job, a_trainer, changed

pytestmark = pytest.mark.cluster

_numbers = itertools.count()
NEW_ROLES = [a_role(pod={"containers": [{"name": "trainer", "image": "example.com/train:2"}]})]
LAUNCH_CHANGES: dict[str, Any] = {
    "trainer": a_trainer(),
    "roles": NEW_ROLES,
    "volumes": [{"name": "v", "mountPath": "/v", "emptyDir": {}}],
    "placement": {"balanced": True},
    "queue": {"priorityClassName": "high"},
    "agent": "None",
    "profile": "fast",
}
POLICY_CHANGES: dict[str, Any] = {
    "failurePolicy": {"maxRestarts": 3},
    "health": {"bindDeadlineSeconds": 30},
    "suspend": True,
    "ttlSecondsAfterFinished": 60,
    "activeDeadlineSeconds": 60,
    "successPolicy": "Rank0",
    "cleanPodPolicy": "All",
}


def stored(client: Client, *, status: Json | None = None, **spec: Any) -> Json:
    """A job on the server, in the state that `status` says."""
    job = a_job(name=f"change-{next(_numbers)}", **spec)
    answer = client.create(job)
    assert answer.allowed, answer.message
    if status:
        client.set_status(job, **status)
    return job


def says(client: Client, job: Json, **spec: Any) -> str:
    """What the server says to the change; empty if it is allowed."""
    answer = client.replace(changed(job, **spec))
    return "" if answer.allowed else answer.message


def test_every_field_of_the_spec_is_a_launch_or_a_policy_field() -> None:
    fields = {alias_of(TrainingJobSpec, name) for name in TrainingJobSpec.model_fields}
    assert fields == set(LAUNCH_FIELDS) | set(POLICY_CHANGES) | {"elastic"}
    assert set(LAUNCH_FIELDS) == set(LAUNCH_CHANGES)


@pytest.mark.parametrize("field", LAUNCH_CHANGES)
def test_a_launch_field_stays_while_the_job_runs(client: Client, field: str) -> None:
    job = stored(client, status={"phase": "Running", "attempt": 1})
    said = says(client, job, **{field: LAUNCH_CHANGES[field]})
    for part in (f"spec.{field}", "Running", "set spec.suspend: true"):
        assert part in said


@pytest.mark.parametrize("field", LAUNCH_CHANGES)
@pytest.mark.parametrize(
    "status", [None, {"phase": "Suspended", "attempt": 4}, {"phase": "Pending", "attempt": 0}], ids=str
)
def test_a_launch_field_changes_while_the_job_is_suspended_without_pods(
    client: Client, field: str, status: Json | None
) -> None:
    job = stored(client, status=status, suspend=True)
    assert says(client, job, **{field: LAUNCH_CHANGES[field]}) == ""


def test_the_trainer_and_its_size_change_together_while_the_job_is_suspended(client: Client) -> None:
    job = a_trained_job()
    job["metadata"]["name"] = f"change-{next(_numbers)}"
    assert client.create(job).allowed
    smaller = {"roles": [{"name": "worker", "replicas": 1}], "trainer": a_trainer(steps=20)}
    client.set_status(job, phase="Running", attempt=1)
    assert "spec.trainer" in says(client, job, trainer=smaller["trainer"])
    assert "spec.roles" in says(client, job, roles=smaller["roles"])
    assert says(client, job, suspend=True) == ""
    client.set_status(job, phase="Suspended")
    job["spec"]["suspend"] = True
    assert says(client, job, **smaller) == ""


def test_suspended_is_not_enough_while_pods_remain(client: Client) -> None:
    job = stored(client, status={"phase": "Running", "attempt": 1}, suspend=True)
    assert "its phase is Running" in says(client, job, roles=NEW_ROLES)


@pytest.mark.parametrize(("before", "after"), [(True, False), (False, True), (False, False)])
def test_both_the_old_and_the_new_object_must_be_suspended(client: Client, before: bool, after: bool) -> None:
    job = stored(client, suspend=before)
    assert "spec.roles" in says(client, job, roles=NEW_ROLES, suspend=after)


def test_a_launch_field_can_be_neither_added_nor_removed_while_the_job_runs(client: Client) -> None:
    job = stored(client, queue={"backend": "Native"}, status={"phase": "Running", "attempt": 1})
    removed = copy.deepcopy(job)
    del removed["spec"]["queue"]
    assert "spec.queue" in client.replace(removed).message


@pytest.mark.parametrize("field", POLICY_CHANGES)
def test_a_policy_field_changes_while_the_job_runs(client: Client, field: str) -> None:
    job = stored(client, status={"phase": "Running", "attempt": 1})
    assert says(client, job, **{field: POLICY_CHANGES[field]}) == ""


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@pytest.mark.parametrize("field", [field for field in POLICY_CHANGES if field != "ttlSecondsAfterFinished"])
def test_a_finished_job_does_not_change(client: Client, phase: str, field: str) -> None:
    job = stored(client, status={"phase": phase, "attempt": 1})
    said = says(client, job, **{field: POLICY_CHANGES[field]})
    for part in (phase, "only ttlSecondsAfterFinished", "another name"):
        assert part in said


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_job_keeps_metadata_and_ttl_open(client: Client, phase: str) -> None:
    job = stored(client, suspend=True, status={"phase": phase, "attempt": 1})
    assert says(client, job, ttlSecondsAfterFinished=0) == ""
    labelled = changed(job, ttlSecondsAfterFinished=0)
    labelled["metadata"]["labels"] = {"kept": "yes"}
    assert client.replace(labelled).allowed
    assert "only ttlSecondsAfterFinished" in says(client, job, roles=NEW_ROLES)


def test_suspending_and_resuming_by_apply_of_the_whole_object(client: Client) -> None:
    """K47: a tool that applies everything again changes nothing but `suspend`."""
    job = a_job(name=f"change-{next(_numbers)}", queue={"backend": "Native"})
    path = f"{job_path(job)}?fieldManager=gitops"
    for suspend in (False, True, False):
        client.ask("PATCH", path, changed(job, suspend=suspend), "application/apply-patch+yaml")
        client.set_status(job, phase="Running", attempt=1)
    assert client.get(job).body["spec"]["suspend"] is False


def test_writes_of_status_touch_no_rule(client: Client) -> None:
    """The operator writes phases of every kind into jobs of every kind."""
    job = stored(client)
    for phase in ("Running", "Failed"):
        assert client.set_status(job, phase=phase, attempt=1)["status"]["phase"] == phase
