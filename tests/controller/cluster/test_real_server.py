"""What only a real API server can say: RBAC, validation of events and leases, outages of a real process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from devcluster.cluster import Cluster
from meshwright.cluster import api as api_module
from meshwright.cluster.api import ApiServer
from meshwright.cluster.backoff import Delays
from meshwright.cluster.caches import PodCache
from meshwright.cluster.credentials import Credentials
from meshwright.cluster.errors import Forbidden, Invalid
from meshwright.cluster.events import MAX_NOTE, Event, EventRecorder, Subject
from meshwright.cluster.lease import Leadership, LeaseTimes
from meshwright.cluster.permissions import PERMISSIONS, Answers, Permission, Scope, check, needed
from meshwright.cluster.reflector import Timings
from meshwright.cluster.resources import EVENTS, PODS
from tests.controller.cluster.builders import a_pod

pytestmark = [pytest.mark.cluster]

CRD = Path(__file__).parents[3] / "crds" / "trainingjobs.meshwright.dev.yaml"


@pytest.fixture
async def api(cluster: Cluster) -> AsyncIterator[ApiServer]:
    server = ApiServer(await Credentials.find(str(cluster.kubeconfig)))
    yield server
    await server.close()


def role(kind: str, name: str, rights: list[Permission]) -> dict[str, Any]:
    """A role that grants exactly these rights."""
    by_resource: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for right in rights:
        resource = f"{right.resource}/{right.subresource}" if right.subresource else right.resource
        by_resource[right.group, resource, right.name].append(right.verb)
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": verbs, **({"resourceNames": [only]} if only else {})}
        for (group, resource, only), verbs in by_resource.items()
    ]
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "rules": rules,
    }


def asked(namespace: str) -> tuple[Permission, ...]:
    return needed((), capacity_reader=True, own_namespace=namespace, lease_name="meshwright-operator")


@pytest.fixture
def account(cluster: Cluster, namespace: str) -> Iterator[Path]:
    """Kubeconfig of a service account with the rights of `PERMISSIONS`, no more, and a Lease as the chart ships it."""
    wanted = asked(namespace)
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    own = f"{rbac}/namespaces/{namespace}"
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": namespace}
    cluster.request("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "operator"}})
    cluster.request(
        "POST", f"{rbac}/clusterroles", role("ClusterRole", namespace, [r for r in wanted if not r.namespace])
    )
    cluster.request("POST", f"{own}/roles", role("Role", "operator", [r for r in wanted if r.namespace]))
    for path, kind, name in ((rbac, "ClusterRole", namespace), (own, "Role", "operator")):
        cluster.request(
            "POST",
            f"{path}/{kind.lower()}bindings",
            {
                "metadata": {"name": name},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
                "subjects": [subject],
            },
        )
    lease = {"metadata": {"name": "meshwright-operator"}}
    cluster.request("POST", f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases", lease)
    yield cluster.kubeconfig_for_service_account(namespace, "operator")
    cluster.request("DELETE", f"{rbac}/clusterrolebindings/{namespace}")
    cluster.request("DELETE", f"{rbac}/clusterroles/{namespace}")


@pytest.fixture
def trainingjobs(cluster: Cluster) -> None:
    cluster.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(CRD))
    cluster.kubectl("wait", "--for=condition=Established", "--timeout=30s", "crd/trainingjobs.meshwright.dev")


async def test_the_listed_rights_are_enough_and_a_missing_one_is_named(
    cluster: Cluster, namespace: str, account: Path, trainingjobs: None
) -> None:
    api = ApiServer(await Credentials.find(str(account)))
    for _ in range(100):  # The authorizer hears of new roles a moment later.
        if (answers := await check(api, asked(namespace))) == Answers():
            break
        await asyncio.sleep(0.05)
    assert answers == Answers()

    secrets = Permission("get", "", "secrets", "", Scope.JOBS)
    lease_of_others = Permission("update", "coordination.k8s.io", "leases", "", Scope.OWN, "other", "kube-system")
    assert (await check(api, [*PERMISSIONS[:3], secrets, lease_of_others])).denied == (secrets, lease_of_others)
    with pytest.raises(Forbidden, match="secrets"):
        await api.request("GET", f"/api/v1/namespaces/{namespace}/secrets")
    await api.close()


async def test_a_refused_object_names_its_fields(api: ApiServer, namespace: str) -> None:
    with pytest.raises(Invalid) as caught:
        await api.create(
            PODS, namespace, {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "B", "image": "x"}]}}
        )
    assert [cause["field"] for cause in caught.value.details["causes"]] == ["spec.containers[0].name"]


async def test_pods_are_copied_and_followed_over_pages(
    cluster: Cluster, api: ApiServer, namespace: str, running: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "PAGE_SIZE", 2)

    async def make(name: str) -> Any:
        pod = a_pod(name, namespace=namespace, node="nowhere", cpu="1")
        del pod["metadata"]["uid"], pod["status"]
        return await api.create(PODS, namespace, pod)

    for number in range(5):
        await make(f"p{number}")
    cache = PodCache(api, [namespace], Timings(delays=Delays(0.05, 0.2)))

    def cpu() -> int:
        return sum(use.resources.cpu for use in cache.usage())

    async with running(cache.run()):
        await cache.wait_synced()
        assert cpu() == 5000
        last = await make("p5")
        await eventually(lambda: cpu() == 6000)
        await api.delete(PODS, namespace, "p5", uid=last["metadata"]["uid"], grace_seconds=0)
        await eventually(lambda: cpu() == 5000)
        await asyncio.to_thread(cluster.restart_api)  # meanwhile the loop hears that its connections are gone
        await make("p6")
        await eventually(lambda: cpu() == 6000, within=20)
    assert cache.reflectors[0].relists == 0, "after a restart the watch goes on from its version"


async def test_events_are_accepted_and_counted(api: ApiServer, namespace: str, running: Any, eventually: Any) -> None:
    now, results = 0.0, list[str]()
    recorder = EventRecorder(api, "operator_1", on_result=results.append, clock=lambda: now)
    subject = Subject("gpt", namespace, "0f667faf-f024-4f96-9660-ddbef7acb4ea", "1")
    event = Event(subject, "WaitingForCapacity", "ä" * MAX_NOTE, "Queue", "1")
    async with running(recorder.run()):
        recorder.record(event)
        await eventually(lambda: results == ["posted"])
        now = 61.0
        recorder.record(event)
        await eventually(lambda: results == ["posted", "posted"])
    (stored,) = (await api.list(EVENTS, namespace)).items
    assert stored["series"]["count"] == 2
    assert stored["regarding"]["kind"] == "TrainingJob"


async def test_the_lease_is_made_kept_and_given_up(
    api: ApiServer, namespace: str, running: Any, eventually: Any
) -> None:
    times = LeaseTimes(2.0, 1.5, 0.1)
    a, b = (Leadership(api, namespace=namespace, name="lease", identity=name, times=times) for name in "ab")
    async with running(b.run()):
        async with running(a.run()):
            await eventually(lambda: a.held.is_set() or b.held.is_set())
            leader, other = (a, b) if a.held.is_set() else (b, a)
            await eventually(lambda: other.holder == leader.identity)
            assert not (a.held.is_set() and b.held.is_set())
        await eventually(b.held.is_set, within=1.5)


class Process:
    """An operator as a process of its own."""

    def __init__(self, popen: subprocess.Popen[bytes], log: Path) -> None:
        self.popen = popen
        self.log = log

    @property
    def says(self) -> str:
        return self.log.read_text()


@pytest.fixture
def start(account: Path, namespace: str, tmp_path: Path) -> Callable[[], Any]:
    @contextmanager
    def run() -> Iterator[Process]:
        flags = {
            "kubeconfig": account,
            "lease-namespace": namespace,
            "metrics-port": 0,
            "heartbeat-port": 0,
            "liveness-port": 0,
            "lease-duration-seconds": 6,
            "lease-renew-deadline-seconds": 4,
            "lease-retry-seconds": 0.3,
            "retry-cap-seconds": 0.5,
            "api-timeout-seconds": 10,
            "watch-silence-seconds": 8,
        }
        argv = [f"--{name}={value}" for name, value in flags.items()]
        log = tmp_path / "operator.log"
        with log.open("wb") as stream:
            popen = subprocess.Popen([sys.executable, "-P", "-m", "meshwright", *argv], stderr=stream, env=os.environ)
            try:
                yield Process(popen, log)
            finally:
                popen.kill()
                popen.wait()

    return run


@pytest.mark.slow
async def test_a_process_works_through_outages_and_ends_at_once(
    cluster: Cluster, namespace: str, trainingjobs: None, start: Callable[[], Any], eventually: Any
) -> None:
    """Frozen, killed and started again: the process stays, and catches up. Its account may not read CRDs."""
    jobs = f"/apis/meshwright.dev/v1alpha1/namespaces/{namespace}/trainingjobs"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/meshwright-operator"

    def make(name: str) -> Callable[[], bool]:
        template = {"spec": {"containers": [{"name": "trainer", "image": "x", "command": ["python", "a.py"]}]}}
        job = {"apiVersion": "meshwright.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}}
        cluster.request(
            "POST", jobs, {**job, "spec": {"roles": [{"name": "worker", "replicas": 1, "template": template}]}}
        )
        return lambda: bool(cluster.request("GET", f"{jobs}/{name}").get("status"))

    with start() as process:
        await eventually(make("before"), process.log, within=150)

        cluster.pause_api()
        try:
            await eventually(lambda: "no longer leading" in process.says, process.log, within=40)
        finally:
            cluster.resume_api()
        await eventually(make("thawed"), process.log, within=60)

        cluster.restart_api("crash")
        await eventually(make("restarted"), process.log, within=60)

        assert process.popen.poll() is None
        began = time.monotonic()
        process.popen.send_signal(signal.SIGTERM)
        assert process.popen.wait(20) == 0, process.says
        assert time.monotonic() - began < 5
        assert cluster.request("GET", lease)["spec"]["holderIdentity"] == ""
        lines = [json.loads(line) for line in process.says.splitlines()]
        assert {"time", "level", "logger", "message"} <= set(lines[0])
        assert not [line for line in lines if "Traceback" in line["message"]], process.says
