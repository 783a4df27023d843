"""parse_job, problems and resolve: total on every JSON value, and exact on what they return."""

from __future__ import annotations

import copy
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from meshwright_api import InvalidJob, TrainingJob, parse_job, problems, resolve
from meshwright_api.keys import known_keys
from meshwright_api.names import MAX_DNS_LABEL, gang_name, pod_name
from meshwright_api.spec import Agent, CleanPodPolicy, SuccessPolicy
from meshwright_api.status import Phase
from tests.api.cases import CASES
from tests.api.jobs import Json, a_container, a_job, a_role, changed, with_container, with_pod

PATIENT = settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
"""A busy machine is no finding."""
WORDS = sorted(
    {key for known in known_keys() for key in known.keys} | {"containers", "env", "image", "labels", "resources"}
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from(WORDS)
ANY_JSON = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=5), inner, max_size=6)
    ),
    max_leaves=25,
)


def _mutate(job: Json, path: list[Any], value: Any) -> Json:
    """The job with the value put where the numbers of the path lead."""
    copied = copy.deepcopy(job)
    at: Any = copied
    for step in path:
        keys = list(at.keys()) if isinstance(at, dict) else list(range(len(at))) if isinstance(at, list) else []
        if not keys:
            break
        key = keys[step % len(keys)]
        if not isinstance(at[key], dict | list):
            at[key] = value
            return copied
        parent, at = at, at[key]
        last = key
    parent[last] = value
    return copied


def _explained(obj: Any) -> bool:
    """Whether the object is refused; then every problem names a field and says something."""
    try:
        parse_job(obj)
    except InvalidJob as error:
        return bool(error.problems) and all(problem.field and problem.message for problem in error.problems)
    return False


class TestTotal:
    @PATIENT
    @given(ANY_JSON, ANY_JSON, ANY_JSON)
    def test_any_object_is_a_job_or_is_explained(self, metadata: Any, spec: Any, status: Any) -> None:
        for obj in ({"metadata": metadata, "spec": spec, "status": status}, metadata):
            assert _explained(obj) or isinstance(parse_job(obj), TrainingJob)

    @PATIENT
    @given(st.sampled_from(CASES), st.lists(st.integers(0, 20), min_size=1, max_size=9), ANY_JSON)
    def test_a_job_with_one_wild_value_is_a_job_or_is_explained(self, case: Any, path: list[int], value: Any) -> None:
        job = _mutate(case.good, path, value)
        assert _explained(job) or resolve(parse_job(job).spec).pods >= 1

    @pytest.mark.parametrize("obj", [None, 5, "x", [], {}, {"spec": []}, {"metadata": []}], ids=repr)
    def test_what_is_no_object_is_explained(self, obj: Any) -> None:
        with pytest.raises(InvalidJob):
            parse_job(obj)

    def test_a_bottomless_value_is_explained(self) -> None:
        deep: Any = {}
        for _ in range(100_000):
            deep = {"roles": deep}
        assert problems(deep, "job")
        assert problems({"roles": [{"name": "worker", "template": deep}]}, "job")

    def test_a_foreign_status_is_explained_and_kept_away(self) -> None:
        with pytest.raises(InvalidJob) as caught:
            parse_job({**a_job(), "status": {"phase": "Created"}})
        assert caught.value.problems[0].field == "status.phase"
        assert caught.value.status.phase is None

    def test_what_could_be_read_is_kept_for_telling_the_user(self) -> None:
        job = {**changed(a_job(), roles=[]), "status": {"phase": "Running", "attempt": 3}}
        job["metadata"] |= {"uid": "u", "generation": 7, "resourceVersion": "9"}
        with pytest.raises(InvalidJob) as caught:
            parse_job(job)
        error = caught.value
        assert (error.metadata.uid, error.metadata.generation, error.metadata.resource_version) == ("u", 7, "9")
        assert (error.status.phase, error.status.attempt) == (Phase.RUNNING, 3)


class TestParsed:
    def test_metadata(self) -> None:
        job = a_job(name="m", namespace="n")
        job["metadata"] |= {
            "uid": "u-1",
            "creationTimestamp": "2026-01-31T12:00:00Z",
            "deletionTimestamp": "2026-01-31T12:00:05.5+01:00",
            "labels": {"a": "b"},
            "annotations": {"c": "d"},
        }
        read = parse_job(job).metadata
        assert (read.name, read.namespace, read.uid) == ("m", "n", "u-1")
        assert read.creation_timestamp == datetime(2026, 1, 31, 12, tzinfo=UTC)
        assert read.deletion_timestamp == datetime(2026, 1, 31, 11, 0, 5, tzinfo=UTC)
        assert (read.labels, read.annotations) == ({"a": "b"}, {"c": "d"})

    def test_defaults(self) -> None:
        spec = parse_job(a_job()).spec
        policy, health = spec.failure_policy, spec.health
        assert (policy.max_restarts, policy.window_seconds, policy.max_disruptions) == (10, 86_400, 100)
        assert (policy.evidence_seconds, policy.force_delete_on_lost_node, policy.rules) == (15, False, ())
        assert (health.startup_deadline_seconds, health.bind_deadline_seconds) == (1800, 60)
        assert (spec.suspend, spec.ttl_seconds_after_finished, spec.active_deadline_seconds) == (False, None, None)
        assert (spec.success_policy, spec.clean_pod_policy) == (SuccessPolicy.ALL_WORKERS, CleanPodPolicy.RUNNING)
        assert resolve(spec).agent is Agent.NONE

    def test_null_is_the_default(self) -> None:
        assert parse_job(a_job(failurePolicy=None, suspend=None)).spec == parse_job(a_job()).spec

    def test_the_template_is_kept_as_written(self) -> None:
        container = a_container(env=[{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "x"}}}], tty=None)
        job = a_job(roles=[a_role(pod={"containers": [container], "tolerations": [{"operator": "Exists"}]})])
        assert parse_job(job).spec.roles[0].template == job["spec"]["roles"][0]["template"]


def _processes(*roles: Json) -> list[tuple[str, int, int, int]]:
    resolved = resolve(parse_job(a_job(roles=list(roles))).spec)
    return [(r.name, r.first_rank, r.processes_per_pod, r.processes) for r in resolved.roles]


def _gpus(count: Any, **container: Any) -> Json:
    return a_container(resources={"limits": {"nvidia.com/gpu": count}}, **container)


class TestResolved:
    """K81: world size counts processes, not pods."""

    @pytest.mark.parametrize(
        ("command", "per_pod"),
        [
            (["python", "train.py"], 1),
            (["torchrun", "train.py"], 8),
            (["/opt/conda/bin/torchrun", "train.py"], 8),
            (["python", "-m", "torch.distributed.run", "train.py"], 8),
            (["python", "-m", "torch.distributed.launch", "train.py"], 8),
            (["bash", "-c", "pip list && torchrun --standalone train.py"], 8),
            (["python", "my_torchrun_helper.py"], 1),
            (["python", "-m", "torch.distributed.runner"], 1),
        ],
    )
    def test_a_process_for_each_gpu_only_where_something_starts_them(self, command: list[str], per_pod: int) -> None:
        assert _processes(a_role(pod={"containers": [_gpus(8, command=command)]})) == [
            ("worker", 0, per_pod, 2 * per_pod)
        ]
        args = a_role(pod={"containers": [_gpus("8", args=command)]})
        assert _processes(args)[0][2] == per_pod

    def test_torchrun_without_gpus_starts_one(self) -> None:
        assert _processes(a_role(pod={"containers": [a_container(command=["torchrun", "x.py"])]}))[0][2] == 1

    def test_gpus_per_pod_counts_as_the_limit_does(self) -> None:
        role = a_role(gpusPerPod=4, pod={"containers": [a_container(command=["torchrun", "x.py"])]})
        assert _processes(role) == [("worker", 0, 4, 8)]

    def test_what_is_said_wins(self) -> None:
        assert _processes(a_role(processesPerPod=3, gpusPerPod=8)) == [("worker", 0, 3, 6)]

    def test_ranks_go_on_from_role_to_role(self) -> None:
        roles = (a_role(processesPerPod=2), a_role("empty", replicas=0), a_role("server", replicas=3))
        assert _processes(*roles) == [("worker", 0, 2, 4), ("empty", 4, 1, 0), ("server", 4, 1, 3)]

    def test_zero_replicas_are_no_pods(self) -> None:
        """K43: 0 means none, not the default."""
        resolved = resolve(parse_job(a_job(roles=[a_role(replicas=0), a_role("b", replicas=1)])).spec)
        assert [r.replicas for r in resolved.roles] == [0, 1]
        assert (resolved.pods, resolved.world_size) == (1, 1)

    def test_the_judged_container_is_the_only_one_or_the_trainer(self) -> None:
        two = [a_container(name="sidecar"), _gpus(2, command=["torchrun"])]
        for found, position in (([a_container(name="any")], 0), (two, 1)):
            resolved = resolve(parse_job(a_job(roles=[a_role(pod={"containers": found})])).spec).roles[0]
            assert resolved.container == position
        assert resolved.gpus_per_pod == 2


ROLES = st.tuples(st.integers(1, 32), st.sampled_from([0, 1, 2, 10, 11, 100, 101, 1000, 1001, 10_000, 10_001]))
"""Length of a role's name, and numbers of pods on both sides of each new digit."""


class TestNames:
    @PATIENT
    @given(st.integers(-3, 3), st.lists(ROLES, min_size=1, max_size=2, unique_by=lambda role: role[0]))
    def test_a_job_is_refused_exactly_when_a_pod_of_it_has_too_long_a_name(
        self, beyond: int, sizes: list[tuple[int, int]]
    ) -> None:
        """K54, K55: for the worst role, its highest index and the 99,999th incarnation."""
        roles = [("r" * length, replicas) for length, replicas in sizes]
        longest = max(len(pod_name("", "uid", role, max(replicas, 1) - 1, 99_999)) for role, replicas in roles)
        name = "n" * max(MAX_DNS_LABEL - longest + beyond, 1)
        assert max(len(pod_name(name, "uid", role, max(n, 1) - 1, 99_999)) for role, n in roles) == len(name) + longest
        said = problems({"roles": [a_role(role, replicas=replicas) for role, replicas in roles]}, name)
        refused = any("characters" in p.message and p.field == "metadata.name" for p in said)
        assert refused == (len(name) + longest > MAX_DNS_LABEL)
        if not refused:
            assert len(gang_name(name, "uid")) <= MAX_DNS_LABEL

    def test_a_reserved_variable_is_refused_whatever_its_value(self) -> None:
        said = problems(with_container(env=[{"name": "WORLD_SIZE", "value": "8"}])["spec"], "job")
        assert [p.field for p in said] == ["spec.roles[0].template.spec.containers[0].env"]


@pytest.mark.parametrize(
    ("pod", "field"),
    [
        ({"resources": {"limits": {"cpu": "four"}}}, "spec.resources.limits.cpu"),
        ({"overhead": {"memory": None}}, "spec.overhead.memory"),
        ({"initContainers": [{"name": "i", "image": "x", "resources": {"limits": {"cpu": ""}}}]}, "initContainers[0]"),
    ],
)
def test_amounts_of_a_pod_are_quantities(pod: Json, field: str) -> None:
    found = [str(problem) for problem in problems(with_pod(**pod)["spec"], "job")]
    assert len(found) == 1
    assert field in found[0]
    assert "is no amount" in found[0]
