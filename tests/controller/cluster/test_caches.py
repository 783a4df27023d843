from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from meshwright.cluster.api import ApiServer
from meshwright.cluster.caches import NodeCache, PodCache, live_gang
from meshwright.cluster.projection import NodeRecord, PodRecord, project_node, project_pod
from meshwright.lifecycle.model import Identity, Job
from meshwright.placement.supply.capacity import PodUse
from meshwright_api import names
from tests.controller.cluster.builders import JOB, JOB_UID, a_member, a_node, a_pod
from tests.controller.cluster.stub_kube import StubKube

NOON = datetime(2026, 11, 29, 12, tzinfo=UTC)


class Told:
    """What a cache told, in order."""

    def __init__(self, cache: PodCache) -> None:
        self.jobs: list[str] = []
        self.uses: list[tuple[PodUse | None, PodUse | None]] = []
        cache.on_job = self.jobs.append
        cache.on_use = lambda old, new: self.uses.append((old, new))


NO_SERVER: Any = None


@pytest.fixture
def pods() -> PodCache:
    return PodCache(NO_SERVER)


@pytest.fixture
def nodes() -> NodeCache:
    return NodeCache(NO_SERVER)


def put(cache: PodCache, item: dict[str, Any], before: dict[str, Any] | None = None) -> PodRecord:
    new = project_pod(item)
    cache._changed(project_pod(before) if before else None, new)
    return new


def drop(cache: PodCache, item: dict[str, Any]) -> None:
    cache._changed(project_pod(item), None)


class TestPods:
    def test_a_gang_is_found_by_its_jobs_uid(self, pods: PodCache) -> None:
        told = Told(pods)
        put(pods, a_member(0))
        put(pods, a_member(1))
        put(pods, a_member(0, job="other", uid="other-uid"))
        put(pods, a_pod(node="n1"))

        assert [pod.identity.index for pod in pods.gang(JOB_UID)] == [0, 1]
        assert pods.gang("unknown") == ()
        assert pods.gang(JOB_UID) is pods.gang(JOB_UID), "asked often, built once"
        assert told.jobs == [JOB_UID, JOB_UID, "other-uid"]
        assert pods.owners() == {JOB_UID, "other-uid"}

    def test_a_change_replaces_what_was_known(self, pods: PodCache) -> None:
        before = a_member(0, phase="Pending")
        put(pods, before)
        put(pods, a_member(0, phase="Failed"), before)
        assert [pod.ended for pod in pods.gang(JOB_UID)] == [True]

    def test_vanished_pods_are_remembered_for_the_newest_incarnation(self, pods: PodCache) -> None:
        for index in (0, 1):
            put(pods, a_member(index, incarnation=1))
        drop(pods, a_member(0, incarnation=1))
        assert pods.vanished(JOB_UID) == {Identity("worker", 0, 1)}

        put(pods, a_member(0, incarnation=2))
        assert pods.vanished(JOB_UID) == frozenset()
        drop(pods, a_member(0, incarnation=2))
        drop(pods, a_member(1, incarnation=1))
        assert pods.vanished(JOB_UID) == {Identity("worker", 0, 2)}
        assert pods.gang(JOB_UID) == ()

        pods.forget(JOB_UID)
        assert pods.vanished(JOB_UID) == frozenset()

    def test_an_end_is_not_a_loss(self, pods: PodCache) -> None:
        before = a_member(0, phase="Running")
        put(pods, before)
        put(pods, a_member(0, phase="Succeeded"), before)
        assert pods.vanished(JOB_UID) == frozenset()

    @pytest.mark.parametrize(
        ("before", "after", "told"),
        [
            (None, a_pod(node="n1"), "takes"),
            (a_pod(), a_pod(node="n1"), "takes"),
            (a_pod(node="n1"), None, "gives"),
            (a_pod(node="n1"), a_pod(node="n1", phase="Succeeded"), "gives"),
            (a_pod(node="n1", cpu="2"), a_pod(node="n1", cpu="1"), "changes"),
            (a_pod(node="n1", phase="Pending"), a_pod(node="n1", phase="Running"), ""),
            (a_pod(), None, ""),
            (a_member(0), a_member(0, phase="Failed"), "gives"),
        ],
    )
    def test_what_a_pod_holds_is_told_when_it_changes(
        self, pods: PodCache, before: dict[str, Any] | None, after: dict[str, Any] | None, told: str
    ) -> None:
        if before:
            put(pods, before)
        heard = Told(pods)
        pods._changed(project_pod(before) if before else None, project_pod(after) if after else None)
        kinds = {(False, True): "takes", (True, False): "gives", (True, True): "changes"}
        assert [kinds[old is not None, new is not None] for old, new in heard.uses] == ([told] if told else [])

    def test_which_jobs_are_on_a_node(self, pods: PodCache) -> None:
        put(pods, a_member(0, node="n1"))
        put(pods, a_member(0, node="n2", job="other", uid="other-uid"))
        assert pods.jobs_on("n1") == {JOB_UID}
        assert pods.jobs_on("n3") == frozenset()

    async def test_a_live_look_sees_what_the_server_has_now(self, api: ApiServer, stub: StubKube) -> None:
        stub.put("pods", a_member(0))
        forged = a_member(1)
        forged["metadata"]["ownerReferences"] = []
        stub.put("pods", forged)
        job = Job(name=JOB, namespace="team", uid=JOB_UID, generation=1, resource_version="1", policy=None)

        assert [pod.identity.index for pod in await live_gang(api, job)] == [0]
        query = stub.requests("GET")[0].query
        assert query["labelSelector"] == f"{names.LABEL_JOB_UID}={JOB_UID}"
        assert "resourceVersion" not in query, "any version would not be now"

    async def test_namespaces_are_watched_one_by_one(
        self, api: ApiServer, stub: StubKube, running: Any, eventually: Any
    ) -> None:
        pods = PodCache(api, ["a", "b"])
        async with running(pods.run()):
            assert not pods.synced
            await pods.wait_synced()
            assert pods.synced
            assert pods.age() < 10
        assert {seen.path for seen in stub.seen} >= {"/api/v1/namespaces/a/pods", "/api/v1/namespaces/b/pods"}


class TestNodes:
    @pytest.fixture
    def told(self, nodes: NodeCache) -> list[str]:
        told: list[str] = []
        nodes.on_node = told.append
        nodes.on_offer = lambda name, node: told.append("room" if node else "no room")
        return told

    def test_come_change_and_go(self, nodes: NodeCache, told: list[str]) -> None:
        ready, lost = project_node(a_node()), project_node(a_node(ready=False))
        nodes._changed(None, ready)
        assert "n1" in nodes
        assert nodes.get("n1") == ready
        assert [capacity.name for capacity in nodes.capacities()] == ["n1"]
        nodes._changed(ready, lost)
        nodes._changed(lost, None)
        assert "n1" not in nodes
        assert told == ["n1", "room", "n1", "room", "no room"]

    def test_more_room_is_told_without_a_change_of_readiness(self, nodes: NodeCache, told: list[str]) -> None:
        small, big = project_node(a_node(cpu="1")), project_node(a_node(cpu="2"))
        nodes._changed(None, small)
        told.clear()
        nodes._changed(small, big)
        assert told == ["room"]

    def test_a_node_made_again_under_its_name_stays(self, nodes: NodeCache, told: list[str]) -> None:
        """A fresh list shows the new one before the old one's absence is noticed."""
        old, new = project_node(a_node(cpu="1")), project_node(a_node(cpu="2"))
        nodes._changed(None, old)
        nodes._changed(None, new)
        nodes._changed(old, None)
        assert nodes.get("n1") == new
        assert "no room" not in told

    @pytest.mark.parametrize(
        ("record", "seconds", "lost"),
        [
            (project_node(a_node()), 0, False),
            (project_node(a_node(ready=False, since="2026-11-29T11:59:50Z")), 5, True),
            (project_node(a_node(ready=False, since="2026-11-29T11:59:50Z")), 15, False),
            (None, 15, True),
        ],
    )
    def test_which_are_lost(self, nodes: NodeCache, record: NodeRecord | None, seconds: float, lost: bool) -> None:
        if record:
            nodes._changed(None, record)
        assert nodes.lost(["n1", ""], NOON, seconds) == frozenset(), "nothing is known before the first list"
        nodes.reflectors[0].synced.set()
        assert nodes.lost(["n1", ""], NOON, seconds) == (frozenset({"n1"}) if lost else frozenset())

    def test_without_the_right_to_read_nodes_none_is_lost(self) -> None:
        nodes = NodeCache(NO_SERVER, readable=False)
        assert nodes.synced
        assert nodes.age() == 0
        assert nodes.lost(["n1"], NOON + timedelta(days=1)) == frozenset()
