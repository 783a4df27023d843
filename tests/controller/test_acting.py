"""Effects are safe to repeat, and touch nothing that is not ours."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import pytest

from meshwright.acting import Refused, carry_out, load_plan
from meshwright.cluster.api import ApiServer
from meshwright.cluster.errors import ApiError, Conflict, Forbidden, Invalid, NotFound, ServerError
from meshwright.cluster.resources import Resource
from meshwright.jobs import KnownJob
from meshwright.lifecycle.model import CreatePod, DeletePod, Identity, ReleaseDomains, StorePlan
from meshwright.rendering.gang import Ground
from meshwright_api import names
from meshwright_api.job import Metadata
from tests.controller.memory_api import MemoryApi
from tests.controller.rendering.fabrics import a_profile, frozen_with
from tests.controller.rendering.jobs import UID, a_job, a_role, frozen

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POD_0 = names.pod_name("demo", UID, "worker", 0, 1)


class Bench:
    """A job with a plan in hand, and an API server in memory."""

    def __init__(self, incarnation: int = 1) -> None:
        self.api = MemoryApi()
        self.now = NOW
        self.plan_of(incarnation)

    def plan_of(self, incarnation: int) -> None:
        self.known = KnownJob({}, Metadata(name="demo", namespace="team", uid=UID))
        self.known.memory.frozen = frozen(a_job(a_role(2)), attempt=incarnation, incarnation=incarnation)
        self.incarnation = incarnation

    async def do(self, *actions: Any) -> None:
        await carry_out(cast(ApiServer, self.api), self.known, actions, lambda: self.now)

    async def store(self) -> None:
        assert self.known.memory.frozen
        await self.do(StorePlan(self.known.memory.frozen.sha256, self.incarnation))

    async def load(self, sha256: str) -> Any:
        return await load_plan(cast(ApiServer, self.api), self.known, self.incarnation, sha256)


def create(index: int = 0, incarnation: int = 1) -> CreatePod:
    return CreatePod(Identity("worker", index, incarnation))


async def test_k51_k52_a_pod_that_exists_already_is_taken_and_never_made_twice() -> None:
    bench = Bench()
    await bench.do(create(0))
    await bench.do(create(0), create(1))
    assert bench.api.names("pods") == [POD_0, names.pod_name("demo", UID, "worker", 1, 1)]
    assert [call for call in bench.api.calls if call[2] == POD_0] == [("create", "pods", POD_0)]


async def test_a_created_pod_is_believed_in_before_the_cache_shows_it() -> None:
    bench = Bench()
    await bench.do(create(1))
    ((pod, when),) = bench.known.memory.created.values()
    assert (pod.identity, when) == (Identity("worker", 1, 1), NOW)


async def test_a_foreign_pod_in_our_place_is_not_touched() -> None:
    bench = Bench()
    bench.api.objects[("pods", "team", POD_0)] = {"metadata": {"name": POD_0, "uid": "theirs"}}
    with pytest.raises(Refused, match=POD_0):
        await bench.do(create(0))
    assert bench.api.objects[("pods", "team", POD_0)]["metadata"]["uid"] == "theirs"


REFUSALS = (
    Forbidden(403, "Forbidden", "exceeded quota: gpus"),
    Invalid(422, "Invalid", "spec: hostPort"),
    ApiError(400, "BadRequest", 'admission webhook "limits" denied the request'),
    ServerError(500, "InternalError", 'failed calling webhook "limits": connection refused'),
)
FAILURES = (ServerError(500, "InternalError", "etcd"), ServerError(503, "", ""), Conflict(409, "Conflict", "again"))


@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: str(error.status))
async def test_a_pod_that_the_server_refuses_does_not_keep_the_others_from_being_tried(error: ApiError) -> None:
    bench = Bench()
    bench.api.refuse["pods"] = error
    with pytest.raises(Refused, match=re.escape(error.message)):
        await bench.do(create(0), create(1))
    assert bench.api.attempts == 2


@pytest.mark.parametrize("plural", ["configmaps", "services", "networkpolicies"])
@pytest.mark.parametrize("error", REFUSALS, ids=lambda error: str(error.status))
async def test_k42_whatever_is_refused_of_what_a_gang_needs_is_said_in_the_servers_words(
    plural: str, error: ApiError
) -> None:
    bench = Bench()
    bench.api.refuse[plural] = error
    with pytest.raises(Refused, match=re.escape(error.message)):
        await bench.store()
    assert bench.known.memory.stored == ""


@pytest.mark.parametrize("plural", ["configmaps", "services", "networkpolicies", "pods"])
@pytest.mark.parametrize("error", FAILURES, ids=lambda error: str(error.status))
async def test_a_server_that_fails_refuses_nothing(plural: str, error: ApiError) -> None:
    bench = Bench()
    bench.api.refuse[plural] = error
    with pytest.raises(type(error)):
        await (bench.do(create(0)) if plural == "pods" else bench.store())


class SlowApi(MemoryApi):
    """Answers a create only once it may."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_answer = 0, asyncio.Event()

    async def create(
        self, resource: Resource, namespace: str | None, body: dict[str, Any], **options: Any
    ) -> dict[str, Any]:
        self.asked += 1
        await self.may_answer.wait()
        return await super().create(resource, namespace, body, **options)


async def test_what_was_done_is_believed_in_from_the_answer_on_however_long_the_call_took() -> None:
    bench = Bench()
    bench.api = slow = SlowApi()
    acting = asyncio.create_task(bench.do(create(0)))
    await asyncio.sleep(0)
    bench.now = NOW + timedelta(minutes=1)
    slow.may_answer.set()
    await acting
    ((_, when),) = bench.known.memory.created.values()
    assert when == bench.now


async def test_the_first_pods_of_a_large_gang_do_not_wait_until_all_are_rendered() -> None:
    bench, pods, taken = Bench(), 400, 200
    expected = [names.pod_name("demo", UID, "worker", index, 1) for index in range(pods)]
    bench.known.memory.frozen = frozen(a_job(a_role(pods)), attempt=1, incarnation=1)
    bench.api = slow = SlowApi()
    for name in expected[:taken]:
        bench.api.objects[("pods", "team", name)] = {"metadata": {"name": name, "uid": "theirs"}}
    acting = asyncio.create_task(bench.do(*map(create, range(pods))))
    for _ in range(10):
        await asyncio.sleep(0)
    assert 0 < slow.asked < pods
    slow.may_answer.set()
    with pytest.raises(Refused, match=POD_0):
        await acting
    made = [name for _, plural, name in slow.calls if plural == "pods"]
    assert sorted(made) == sorted(expected[taken:]), "however many were refused, the others are made"


async def test_a_deletion_names_the_pod_it_means() -> None:
    bench = Bench()
    await bench.do(create(0))
    await bench.do(DeletePod(POD_0, "another", 0))
    assert bench.api.names("pods") == [POD_0]
    uid = bench.api.objects[("pods", "team", POD_0)]["metadata"]["uid"]
    await bench.do(DeletePod(POD_0, uid, 0))
    assert bench.api.names("pods") == []
    assert uid in bench.known.memory.deleted


async def test_a_plan_is_stored_once_and_read_back_only_under_its_hash() -> None:
    bench = Bench()
    await bench.store()
    await bench.store()
    assert len(bench.api.names("configmaps")) == 2
    assert bench.api.names("services") == [names.gang_name("demo", UID)]
    sha256 = bench.known.memory.stored
    assert (await bench.load(sha256)) == bench.known.memory.frozen
    assert await bench.load("0" * 64) is None


async def test_a_network_policy_is_there_before_any_pod_and_stays_as_it_is() -> None:
    bench = Bench()
    await bench.store()
    policy = ("networkpolicies", "team", names.gang_name("demo", UID))
    assert policy in bench.api.objects
    bench.plan_of(2)
    before = len(bench.api.calls)
    await bench.store()
    assert not [call for call in bench.api.calls[before:] if call[1] == "networkpolicies"]


async def test_a_network_policy_that_somebody_changed_is_put_right_in_place() -> None:
    bench = Bench()
    await bench.store()
    there = bench.api.objects[("networkpolicies", "team", names.gang_name("demo", UID))]
    rendered, there["spec"] = there["spec"], {"podSelector": {}, "ingress": [{}]}
    bench.plan_of(2)
    await bench.store()
    assert bench.api.calls[-3][:2] == ("update", "networkpolicies")
    assert bench.api.objects[("networkpolicies", "team", names.gang_name("demo", UID))]["spec"] == rendered


async def test_somebody_elses_network_policy_is_not_touched() -> None:
    bench = Bench()
    name = names.gang_name("demo", UID)
    theirs = {"metadata": {"name": name, "uid": "theirs"}, "spec": {"podSelector": {}}}
    bench.api.objects[("networkpolicies", "team", name)] = theirs
    with pytest.raises(Refused, match=f"NetworkPolicy named {name} exists that this job does not own"):
        await bench.store()
    assert bench.api.objects[("networkpolicies", "team", name)] == theirs


async def test_without_its_network_policy_no_pod_is_made() -> None:
    bench = Bench()
    bench.api.refuse["networkpolicies"] = Forbidden(403, "Forbidden", "exceeded quota: policies")
    with pytest.raises(Refused, match="exceeded quota"):
        await bench.store()
    assert bench.known.memory.stored == ""


async def test_a_profiles_variables_are_there_before_any_pod_and_go_with_their_incarnation() -> None:
    bench = Bench()
    for incarnation in (1, 2):
        reading = a_role(1, container={"envFrom": [{"secretRef": {"name": "s"}}]})
        bench.known.memory.frozen = frozen_with(a_job(reading), a_profile("tcp"), incarnation=incarnation)
        bench.incarnation = incarnation
        await bench.store()
    there = {name for plural, _, name in bench.api.objects if plural == "configmaps"}
    assert names.variables_name("demo", UID, 2) in there
    assert names.variables_name("demo", UID, 1) not in there


class DomainBench(Bench):
    """A job whose plan has two ComputeDomains."""

    def __init__(self) -> None:
        super().__init__()
        job = a_job(a_role(2, gpus_per_pod=4))
        ground = Ground(cliques={"node-0": "c.1", "node-1": "c.2"})
        self.known.memory.frozen = frozen_with(job, a_profile("mnnvl"), ground)
        self.api.objects[("trainingjobs", "team", "demo")] = {
            "metadata": {"name": "demo", "namespace": "team", "uid": UID, "finalizers": ["theirs"]}
        }
        self.known.metadata = replace(self.known.metadata, finalizers=("theirs",))

    @property
    def finalizers(self) -> object:
        return self.api.objects[("trainingjobs", "team", "demo")]["metadata"]["finalizers"]


async def test_a_job_cannot_go_before_its_compute_domains_and_they_are_there_before_its_pods() -> None:
    bench = DomainBench()
    await bench.store()
    assert bench.finalizers == ["theirs", names.FINALIZER]
    kinds = [plural for _, plural, _ in bench.api.calls]
    assert kinds.count("trainingjobs") == 1
    assert kinds.index("trainingjobs") < kinds.index("computedomains")
    assert len(bench.api.names("computedomains")) == 2
    before = len(bench.api.calls)
    await bench.store()
    assert bench.api.calls[before:] == [], "what is there stays"


async def test_compute_domains_are_released_with_the_finalizer_and_nobody_elses() -> None:
    bench = DomainBench()
    await bench.store()
    other = {"metadata": {"name": "other", "uid": "o", "labels": {names.LABEL_JOB_UID: "another"}}}
    bench.api.objects[("computedomains", "team", "other")] = other
    await bench.do(ReleaseDomains(UID))
    assert bench.api.names("computedomains") == ["other"]
    assert bench.finalizers == ["theirs"]
    assert bench.known.metadata.finalizers == ("theirs",), "the next round knows"
    assert bench.api.calls[-1][:2] == ("patch", "trainingjobs"), "last, or a crash between the two would leak them"


async def test_without_the_kind_the_job_says_what_to_install() -> None:
    bench = DomainBench()
    bench.api.refuse["computedomains"] = NotFound(404, "NotFound", "the server could not find the requested resource")
    with pytest.raises(Refused, match=r"serves no ComputeDomain .* install NVIDIA's DRA driver"):
        await bench.store()


async def test_a_compute_domain_of_somebody_else_is_not_touched_and_one_that_goes_is_waited_for() -> None:
    for metadata, error, says in (
        ({"uid": "x"}, Refused, "this job does not own"),
        ({"labels": {names.LABEL_JOB_UID: UID}, "deletionTimestamp": "x"}, Conflict, "still being deleted"),
    ):
        bench = DomainBench()
        name = next(iter(bench.known.memory.frozen.domains.values()))  # type: ignore[union-attr]
        theirs = {"metadata": {"name": name, **metadata}}
        bench.api.objects[("computedomains", "team", name)] = theirs
        with pytest.raises(error, match=says):
            await bench.store()
        assert bench.api.objects[("computedomains", "team", name)] == theirs


async def test_another_plan_under_our_name_is_replaced() -> None:
    bench = Bench()
    name = names.plan_name("demo", UID, 1)
    bench.api.objects[("configmaps", "team", name)] = {
        "metadata": {"name": name, "uid": "forged"},
        "data": {"plan.json": "{}"},
    }
    await bench.store()
    assert bench.api.objects[("configmaps", "team", name)]["metadata"]["uid"] != "forged"
    assert await bench.load(bench.known.memory.stored) is not None


async def test_a_plan_that_was_tampered_with_is_no_plan() -> None:
    bench = Bench()
    await bench.store()
    plan = bench.api.objects[("configmaps", "team", names.plan_name("demo", UID, 1))]
    plan["data"] = {key: text.replace("worker", "walker") for key, text in plan["data"].items()}
    assert await bench.load(bench.known.memory.stored) is None


async def test_a_new_plan_removes_the_older_ones() -> None:
    bench = Bench()
    await bench.store()
    bench.plan_of(2)
    await bench.store()
    assert bench.api.names("configmaps") == sorted(
        (names.plan_name("demo", UID, 2), names.placement_name("demo", UID, 2))
    )
