from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.cluster import projection
from meshwright.cluster.projection import NodeRecord, PodRecord
from meshwright.cluster.shapes import NodeShape, PodShape, Reader
from meshwright.lifecycle.model import Identity, Pod, PodState
from meshwright.placement.supply.resources import Resources
from meshwright.rendering.pinning import pinned
from meshwright_api import names
from tests.controller.cluster.builders import JOB, JOB_UID, a_member, a_node, a_pod, container

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


PODS, NODES = Reader(PodShape), Reader(NodeShape)


def project_pod(item: dict[str, Any]) -> PodRecord:
    """The record; that of what a watch reads of the pod is the same."""
    record = projection.project_pod(item)
    assert projection.project_pod(PODS.read(json.dumps(item).encode())) == record
    return record


def project_node(item: dict[str, Any]) -> NodeRecord:
    """The record; that of what a watch reads of the node is the same."""
    record = projection.project_node(item)
    assert projection.project_node(NODES.read(json.dumps(item).encode())) == record
    return record


def broken(template: Any) -> st.SearchStrategy[Any]:
    """An object like `template`, in which anything at any depth may be missing or something else."""
    whole: st.SearchStrategy[Any]
    if isinstance(template, dict):
        whole = st.fixed_dictionaries({}, optional={key: broken(value) for key, value in template.items()})
    elif isinstance(template, list):
        whole = st.lists(st.one_of([broken(item) for item in template]), max_size=2)
    else:
        whole = st.just(template)
    return whole | JSON


FULL_POD = a_member(
    phase="Failed",
    reason="Evicted",
    message="text",
    conditions=[{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}],
    containerStatuses=[
        container("terminated", exitCode=1, reason="Error", finishedAt="2026-11-29T12:00:05Z", message="m")
    ],
    initContainerStatuses=[container("waiting", reason="ImagePullBackOff", name="agent")],
)
FULL_POD["spec"]["affinity"] = pinned(None, "n1")
FULL_POD["spec"]["containers"][0]["ports"] = [{"containerPort": 80, "hostPort": 80, "protocol": "TCP", "hostIP": ""}]
FULL_POD["metadata"] |= {
    "annotations": {names.ANNOTATION_CONTAINER: "trainer"},
    "deletionTimestamp": "2026-11-29T12:01:00Z",
    "deletionGracePeriodSeconds": 30,
}


@settings(max_examples=60, deadline=None)
@given(broken(FULL_POD))
def test_any_json_is_a_pod_record(item: Any) -> None:
    if isinstance(item, dict):
        assert isinstance(project_pod(item), PodRecord)


@settings(max_examples=60, deadline=None)
@given(broken(a_node()))
def test_any_json_is_a_node_record(item: Any) -> None:
    if isinstance(item, dict):
        record = project_node(item)
        assert isinstance(record, NodeRecord)
        assert (record.not_ready_since is None) == record.capacity.ready
        hash(record.name)


@settings(max_examples=60, deadline=None)
@given(broken(FULL_POD))
def test_records_of_equal_objects_are_equal(item: Any) -> None:
    """The reflector reports a change only when a record differs."""
    if isinstance(item, dict):
        assert project_pod(item) == project_pod(json.loads(json.dumps(item)))


def disrupted(truth: str) -> dict[str, Any]:
    return {"type": "DisruptionTarget", "status": truth, "reason": "TerminationByKubelet"}


def gang_pod(item: dict[str, Any]) -> Pod:
    pod = project_pod(item).pod
    assert pod is not None
    return pod


class TestWhoseItIs:
    def test_a_member(self) -> None:
        record = project_pod(a_member(3, incarnation=2, role="param-server"))
        assert record.job_uid == JOB_UID
        assert record.pod is not None
        assert record.pod.identity == Identity("param-server", 3, 2)

    @pytest.mark.parametrize(
        "change",
        [
            {"kind": "Job"},
            {"apiVersion": "batch/v1"},
            {"apiVersion": "meshwright.dev.evil/v1"},
            {"controller": False},
            {"controller": "true"},
            {"uid": "another"},
            {"name": "another"},
        ],
    )
    def test_labels_alone_make_no_member(self, change: dict[str, Any]) -> None:
        pod = a_member()
        pod["metadata"]["ownerReferences"][0] |= change
        record = project_pod(pod)
        assert (record.job_uid, record.pod) == ("", None)
        assert record.use is not None, "it takes room all the same"

    def test_changed_labels_change_nothing(self) -> None:
        pod = a_member(3)
        pod["metadata"]["labels"] |= {names.LABEL_INDEX: "0", names.LABEL_ROLE: "x"}
        assert gang_pod(pod).identity == Identity("worker", 3, 1)

    @pytest.mark.parametrize(
        "suffix", ["worker-0", "worker-0-", "worker-x-1", "-0-1", "worker-0-٣", "worker--1-0x", "9" * 20]
    )
    def test_a_name_that_we_never_gave_is_no_member(self, suffix: str) -> None:
        pod = a_member()
        pod["metadata"]["name"] = f"{names.gang_name(JOB, JOB_UID)}-{suffix}"
        assert project_pod(pod).pod is None


class TestHowFarItIs:
    @pytest.mark.parametrize(
        ("status", "state"),
        [
            ({}, PodState.WAITING),
            ({"phase": "Pending"}, PodState.WAITING),
            (
                {"phase": "Pending", "containerStatuses": [container("waiting", reason="ContainerCreating")]},
                PodState.WAITING,
            ),
            ({"phase": "Running", "containerStatuses": [container("running", startedAt="x")]}, PodState.RUNNING),
            # The kubelet says Running while the trainer has ended and a sidecar goes on.
            ({"phase": "Running", "containerStatuses": [container("terminated", exitCode=0)]}, PodState.SUCCEEDED),
            ({"phase": "Running", "containerStatuses": [container("terminated", exitCode=1)]}, PodState.FAILED),
            # A sidecar's failure is not the trainer's.
            ({"phase": "Failed", "containerStatuses": [container("terminated", exitCode=0)]}, PodState.SUCCEEDED),
            # A kubelet that shuts its node down, or evicts, fails the pod as a whole and deletes nothing; a script that
            # saves and exits with 0 on SIGTERM has not finished (K07, K23).
            (
                {
                    "phase": "Failed",
                    "reason": "Terminated",
                    "containerStatuses": [container("terminated", exitCode=0)],
                },
                PodState.FAILED,
            ),
            (
                {"conditions": [disrupted("True")], "containerStatuses": [container("terminated", exitCode=0)]},
                PodState.FAILED,
            ),
            (
                {"conditions": [disrupted("False")], "containerStatuses": [container("terminated", exitCode=0)]},
                PodState.SUCCEEDED,
            ),
            ({"phase": "Failed", "reason": "Evicted"}, PodState.FAILED),
            ({"phase": "Failed", "containerStatuses": [container("running")]}, PodState.FAILED),
            ({"phase": "Succeeded"}, PodState.SUCCEEDED),
            ({"phase": "Unknown"}, PodState.WAITING),
        ],
    )
    def test_is_judged_by_the_trainer_then_by_the_phase(self, status: dict[str, Any], state: PodState) -> None:
        assert gang_pod(a_member(**status)).state is state

    def test_the_only_container_is_judged_whatever_its_name(self) -> None:
        pod = a_member(containerStatuses=[container("terminated", name="main", exitCode=3)])
        pod["spec"]["containers"][0]["name"] = "main"
        assert gang_pod(pod).exit_code == 3

    def test_of_several_only_the_trainer_is_judged(self) -> None:
        statuses = [container("terminated", name="sidecar", exitCode=3), container("running")]
        pod = a_member(containerStatuses=statuses)
        pod["spec"]["containers"].append({"name": "sidecar"})
        assert gang_pod(pod).state is PodState.RUNNING

    def test_the_end_in_full(self) -> None:
        ended = container(
            "terminated", exitCode=137, reason="OOMKilled", finishedAt="2026-11-29T12:00:05Z", message="bye"
        )
        pod = gang_pod(a_member(containerStatuses=[ended]))
        assert (pod.exit_code, pod.reason, pod.last_words) == (137, "OOMKilled", "bye")
        assert pod.finished_at == datetime(2026, 11, 29, 12, 0, 5, tzinfo=UTC)
        assert (pod.node, pod.image_id) == ("n1", "docker.io/x@sha256:1")

    def test_the_pods_own_reason_comes_before_the_containers(self) -> None:
        ended = container("terminated", exitCode=137, reason="Error", message="step 7")
        pod = gang_pod(a_member(phase="Failed", reason="Evicted", message="low on memory", containerStatuses=[ended]))
        assert (pod.reason, pod.last_words) == ("Evicted", "step 7\nlow on memory"), "K24: which resource ran out"

    def test_a_kubelets_refusal(self) -> None:
        pod = gang_pod(a_member(phase="Failed", reason="UnexpectedAdmissionError", message="Allocate failed"))
        assert (pod.state, pod.reason, pod.exit_code) == (PodState.FAILED, "UnexpectedAdmissionError", None)

    def test_an_init_container_that_failed_gives_the_reason_and_no_exit_code_of_the_trainer(self) -> None:
        failed = container("terminated", name="fetch", exitCode=3, reason="Error", message="no such bucket")
        pod = gang_pod(a_member(phase="Failed", initContainerStatuses=[failed]))
        assert (pod.state, pod.reason, pod.last_words) == (PodState.FAILED, "Error", "no such bucket")
        assert pod.exit_code is None, "a failure rule speaks of the trainer's exit codes"

    @pytest.mark.parametrize(
        ("status", "waiting"),
        [
            ({"containerStatuses": [container("waiting", reason="ImagePullBackOff")]}, "ImagePullBackOff"),
            (
                {
                    "containerStatuses": [container("waiting", reason="PodInitializing")],
                    "initContainerStatuses": [container("waiting", name="a", reason="ErrImagePull")],
                },
                "ErrImagePull",
            ),
            ({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}, "Unschedulable"),
            ({"conditions": [{"type": "PodScheduled", "status": "True", "reason": "x"}]}, ""),
            ({"phase": "Failed", "containerStatuses": [container("waiting", reason="ContainerCreating")]}, ""),
        ],
    )
    def test_why_it_waits(self, status: dict[str, Any], waiting: str) -> None:
        assert gang_pod(a_member(**status)).waiting == waiting

    def test_what_is_said_in_full_of_a_pod_that_waits(self) -> None:
        """K16, K86."""
        pulling = container("waiting", reason="ImagePullBackOff", message="manifest unknown")
        assert gang_pod(a_member(phase="Pending", containerStatuses=[pulling])).last_words == "manifest unknown"
        unbound = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes: ports"}
        assert gang_pod(a_member(conditions=[unbound])).last_words == "0/3 nodes: ports"
        bound = {**unbound, "status": "True"}
        running = container("running", startedAt="x")
        assert gang_pod(a_member(conditions=[bound], containerStatuses=[running])).last_words == ""

    def test_the_trained_container_is_judged_by_its_name_whatever_is_injected_beside_it(self) -> None:
        """K85."""
        statuses = [container("running", name="proxy"), container("terminated", name="main", exitCode=3)]
        pod = a_member(containerStatuses=statuses)
        pod["spec"]["containers"] = [{"name": "proxy"}, {"name": "main"}]
        assert gang_pod(pod).state is PodState.WAITING, "nothing says which it is"
        pod["metadata"]["annotations"] = {names.ANNOTATION_CONTAINER: "main"}
        assert gang_pod(pod).exit_code == 3
        pod["metadata"]["annotations"] = {names.ANNOTATION_CONTAINER: "gone"}
        pod["spec"]["containers"][1]["name"] = "trainer"
        pod["status"]["containerStatuses"][1]["name"] = "trainer"
        assert gang_pod(pod).exit_code == 3

    @pytest.mark.parametrize(
        ("phase", "beside", "lingers"),
        [
            ("Running", [container("running", name="proxy")], True),
            ("Running", [container("terminated", name="proxy", exitCode=0)], False),
            ("Running", [container("waiting", name="proxy")], False),
            ("Running", [], False),
            ("Failed", [container("running", name="proxy")], False),
        ],
    )
    def test_a_sidecar_that_runs_on_keeps_the_room_of_a_pod_that_has_ended(
        self, phase: str, beside: list[Any], lingers: bool
    ) -> None:
        pod = gang_pod(a_member(phase=phase, containerStatuses=[container("terminated", exitCode=0), *beside]))
        assert (pod.ended, pod.lingers, pod.over) == (True, lingers, not lingers)

    def test_a_sidecar_beside_what_still_runs_makes_nothing_linger(self) -> None:
        pod = gang_pod(
            a_member(phase="Running", containerStatuses=[container("running"), container("running", name="b")])
        )
        assert not pod.lingers

    def test_for_which_node_it_was_made(self) -> None:
        own = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}}}  # fmt: skip
        for affinity, node in ((None, ""), (own, ""), (pinned(None, "n7"), "n7"), (pinned(own, "n7"), "n7")):
            pod = a_member(node="")
            pod["spec"]["affinity"] = affinity
            assert gang_pod(pod).pinned == node

    @pytest.mark.parametrize(("truth", "disruption"), [("True", "PreemptionByScheduler"), ("False", "")])
    def test_a_disruption_counts_only_while_it_is_true(self, truth: str, disruption: str) -> None:
        target = {**disrupted(truth), "reason": "PreemptionByScheduler"}
        assert gang_pod(a_member(conditions=[target])).disruption == disruption

    def test_deletion_counts_from_when_it_was_asked_for(self) -> None:
        pod = a_member()
        pod["metadata"] |= {"deletionTimestamp": "2026-11-29T12:01:00Z", "deletionGracePeriodSeconds": 30}
        assert gang_pod(pod).stop_requested_at == datetime(2026, 11, 29, 12, 0, 30, tzinfo=UTC)
        assert gang_pod(pod).stopping

    def test_last_words_are_the_end_of_a_kib_whatever_the_script(self) -> None:
        ended = container("terminated", exitCode=1, message="ä" * 2000 + "!")
        words = gang_pod(a_member(containerStatuses=[ended])).last_words
        assert words.endswith("ä!")
        assert 1020 <= len(words.encode()) <= 1024


class TestWhatItHolds:
    def test_its_requests_on_its_node(self) -> None:
        use = project_pod(a_pod(node="n1", cpu="500m", phase="Running")).use
        assert use is not None
        assert (use.node, use.resources) == ("n1", Resources(cpu=500, pods=1))

    @pytest.mark.parametrize(("port", "on_the_host"), [({"hostPort": 80}, False), ({"containerPort": 80}, True)])
    def test_ports_of_its_node(self, port: dict[str, Any], on_the_host: bool) -> None:
        pod = a_pod(node="n1", phase="Running")
        pod["spec"]["hostNetwork"] = on_the_host
        pod["spec"]["containers"][0]["ports"] = [{**port, "name": "web", "protocol": "UDP"}]
        use = project_pod(pod).use
        assert use is not None
        assert use.resources == Resources(pods=1, other=(("a node without pods on host port 80/UDP", 1),))

    @pytest.mark.parametrize("pod", [a_pod(), a_pod(node="n1", phase="Succeeded"), a_pod(node="n1", phase="Failed")])
    def test_nothing_when_it_is_not_bound_or_over(self, pod: dict[str, Any]) -> None:
        assert project_pod(pod).use is None

    def test_its_room_until_it_is_gone(self) -> None:
        pod = a_pod(node="n1", cpu="1", phase="Running")
        pod["metadata"]["deletionTimestamp"] = "2026-11-29T12:01:00Z"
        assert project_pod(pod).use is not None

    def test_one_place_at_least_when_its_requests_cannot_be_read(self) -> None:
        use = project_pod(a_pod(node="n1", cpu="much", phase="Running")).use
        assert use is not None
        assert use.resources == Resources(pods=1)

    def test_equal_amounts_are_one_object(self) -> None:
        uses = [project_pod(a_pod(name, node="n1", cpu="7")).use for name in "ab"]
        assert uses[0]
        assert uses[1]
        assert uses[0].resources is uses[1].resources


class TestNodes:
    def test_ready(self) -> None:
        record = project_node(a_node())
        assert record.capacity.ready
        assert record.not_ready_since is None
        assert record.capacity.allocatable.cpu == 8000

    def test_not_ready_since(self) -> None:
        record = project_node(a_node(ready=False, since="2026-11-29T13:00:00Z"))
        assert record.not_ready_since == datetime(2026, 11, 29, 13, tzinfo=UTC)

    def test_a_heartbeat_is_no_change(self) -> None:
        node = a_node()
        node["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-11-29T14:00:00Z"
        assert project_node(node) == project_node(a_node())

    def test_one_that_cannot_be_read_takes_no_gang(self) -> None:
        record = project_node(a_node(cpu="many"))
        assert record.name == "n1"
        assert not record.capacity.ready
