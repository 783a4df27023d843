"""What a pass reads of a job that cannot be read."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

import pytest

from meshwright.jobs import Jobs, KnownJob
from meshwright.lifecycle.decide import decide
from meshwright.lifecycle.model import Identity, Observation, Pod
from meshwright.observing import observe, read_job
from meshwright.settings import Settings
from meshwright_api.job import parse_metadata
from meshwright_api.status import TrainingJobStatus
from tests.controller.lifecycle.gangs import T0, a_pod

METADATA = {"name": "job", "namespace": "team", "uid": "u", "resourceVersion": "1", "generation": 1}
TEMPLATE = {"spec": {"containers": [{"name": "trainer", "image": "x", "command": ["train"]}]}}
SPEC = {"roles": [{"name": "worker", "replicas": 1, "template": TEMPLATE}]}


def known(**raw: Any) -> KnownJob:
    raw = {"metadata": METADATA, "spec": SPEC, **raw}
    return KnownJob(raw, parse_metadata(raw))


def observed(job: KnownJob) -> Observation:
    read, _, status = read_job(job)
    return Observation(now=T0, job=read, status=status)


def test_nothing_is_written_over_a_status_that_cannot_be_read() -> None:
    decision = decide(observed(known(status={"phase": "Dreaming", "attempt": 7})))
    assert (decision.status, decision.actions) == (None, ())
    assert "Dreaming" in decision.why


def test_a_spec_that_cannot_be_run_is_told_so() -> None:
    decision = decide(observed(known(spec={"roles": 5})))
    assert decision.status is not None
    assert decision.status.conditions[0].reason == "InvalidSpec"


def test_a_readable_job_has_a_policy() -> None:
    read, parsed, _ = read_job(known())
    assert read.policy is not None
    assert parsed is not None


class Shown:
    """Caches that show one pod of the first incarnation, and which nodes are lost."""

    def __init__(self, *lost: str) -> None:
        self._lost = frozenset(lost)

    def gang(self, job_uid: str) -> tuple[Pod, ...]:
        return (a_pod(0, 1, node="n1"),)

    def vanished(self, job_uid: str) -> frozenset[Identity]:
        return frozenset()

    def lost(self, names: set[str], now: datetime, after_seconds: float) -> frozenset[str]:
        return self._lost & names


@pytest.mark.parametrize(("lost", "disturbed"), [((), True), (("n2",), True), (("n1",), False)])
def test_k26_an_old_pod_that_a_lost_node_never_lets_go_does_not_stop_the_clocks(
    lost: tuple[str, ...], disturbed: bool
) -> None:
    job, caches = known(), cast(Any, Shown(*lost))
    observation = observe(job, read_job(job)[0], TrainingJobStatus(incarnation=2), caches, caches, Settings(), T0)
    assert (observation.undisturbed_since is None) is disturbed


def test_a_job_is_read_once_for_each_of_its_states() -> None:
    jobs = Jobs()
    job = jobs.put({"metadata": METADATA, "spec": SPEC})
    assert job is not None
    first = read_job(job)
    assert read_job(job) is first
    jobs.put({"metadata": {**METADATA, "resourceVersion": "2"}, "spec": SPEC, "status": {"phase": "Pending"}})
    assert read_job(job)[2].phase == "Pending"
