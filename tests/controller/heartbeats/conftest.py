"""A heartbeat server on loopback, over a stub API server that knows a few tokens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from meshwright.cluster.api import ApiServer
from meshwright.cluster.caches import PodCache
from meshwright.cluster.credentials import Credentials
from meshwright.cluster.errors import NotLeading
from meshwright.heartbeats.directory import Directory
from meshwright.heartbeats.identity import Identities
from meshwright.heartbeats.keys import MasterKey
from meshwright.heartbeats.server import HeartbeatServer
from meshwright.jobs import Jobs
from meshwright.progress import ProgressBoard
from meshwright_api import names
from tests.controller.cluster.builders import JOB, JOB_UID, a_member
from tests.controller.cluster.stub_kube import StubKube

Json = dict[str, Any]
NAMESPACE = "team"


@dataclass
class Lead:
    """Leadership as the server sees it."""

    leads: bool = True
    term: int = 1
    holder_address: str = "http://10.0.0.9:8082"

    def require(self) -> None:
        if not self.leads:
            raise NotLeading("no")


@dataclass
class Ground:
    """A server, what stands around it, and a client."""

    stub: StubKube
    server: HeartbeatServer
    board: ProgressBoard
    jobs: Jobs
    identities: Identities
    lead: Lead
    outcomes: Counter[str]
    url: str
    session: aiohttp.ClientSession
    clock: list[float]
    reviews: list[str] = field(default_factory=list)

    async def post(self, body: Json | bytes, token: str = "pod-0", uid: str = JOB_UID) -> tuple[int, Json]:
        """Sends a report; returns status and answer."""
        data = body if isinstance(body, bytes) else None
        sent = None if isinstance(body, bytes) else body
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        url = f"{self.url}/v1/jobs/{uid}/heartbeats"
        async with self.session.post(url, data=data, json=sent, headers=headers) as answer:
            return answer.status, await answer.json()

    async def get(self, path: str, token: str = "pod-0") -> tuple[int, str]:
        headers = {"Authorization": f"Bearer {token}"}
        async with self.session.get(self.url + path, headers=headers) as answer:
            return answer.status, await answer.text()


def a_job(attempt: int = 3, incarnation: int = 1) -> Json:
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.KIND,
        "metadata": {"name": JOB, "namespace": NAMESPACE, "uid": JOB_UID, "resourceVersion": "5", "generation": 1},
        "spec": {},
        "status": {"attempt": attempt, "incarnation": incarnation, "planSHA256": "ab" * 32},
    }


def a_report(index: int = 0, **changes: Any) -> Json:
    report = {
        "attempt": 3,
        "incarnation": 1,
        "role": "worker",
        "index": index,
        "pod": names.pod_name(JOB, JOB_UID, "worker", index, 1),
        "heard": 1,
        "progress": {"step": 42, "loss": 2.5, "checkpoint": {"step": 40, "time": 1795982400}},
    }
    return report | changes


def review(token: str, pods: Json) -> Json:
    """What an API server says of a token."""
    pod = pods.get(token)
    if pod is None:
        return {"status": {"authenticated": False}}
    extra = {
        "authentication.kubernetes.io/pod-name": [pod["metadata"]["name"]],
        "authentication.kubernetes.io/pod-uid": [pod["metadata"]["uid"]],
    }
    user = {"username": f"system:serviceaccount:{pod['metadata']['namespace']}:default", "extra": extra}
    return {"status": {"authenticated": True, "audiences": ["meshwright"], "user": user}}


@pytest.fixture
async def ground(stub: StubKube, kubeconfig: Callable[..., str]) -> AsyncIterator[Ground]:
    members = {f"pod-{i}": a_member(i, uid=JOB_UID, podIP=f"10.0.0.{i}") for i in range(2)}
    foreign = a_member(0, uid="another-job")
    claimant = a_member(1)
    claimant["metadata"] |= {"namespace": "elsewhere", "uid": "uid-claimant"}
    tokens = {**members, "foreign": foreign, "claimant": claimant}
    reviews: list[str] = []

    def fault(request: web.Request) -> web.Response | None:
        if not request.path.endswith("/tokenreviews"):
            return None
        token = stub.seen[-1].body["spec"]["token"]
        assert stub.seen[-1].body["spec"]["audiences"] == ["meshwright"]
        reviews.append(token)
        return web.json_response(review(token, tokens), status=201)

    stub.fault = fault
    for pod in (*members.values(), foreign, claimant):
        stub.put("pods", pod)
    api = ApiServer(await Credentials.find(kubeconfig(stub.url)), timeout=5.0)
    pods = PodCache(api)
    watching = asyncio.create_task(pods.run())
    await pods.wait_synced()
    jobs, board, lead, clock = Jobs(), ProgressBoard(), Lead(), [1000.0]
    jobs.put(a_job())
    identities = Identities(api, lambda: clock[0])
    outcomes: Counter[str] = Counter()

    class Observer:
        def heartbeat(self, outcome: str) -> None:
            outcomes[outcome] += 1

    server = HeartbeatServer(
        Directory(api, jobs, pods),
        identities,
        MasterKey(api, "meshwright-system", "operator-keys"),
        lead,  # type: ignore[arg-type]
        board,
        Observer(),
        interval_seconds=10.0,
        clock=lambda: clock[0],
    )
    served = TestServer(server.application())
    await served.start_server()
    async with aiohttp.ClientSession() as session:
        url = str(served.make_url("")).rstrip("/")
        yield Ground(stub, server, board, jobs, identities, lead, outcomes, url, session, clock, reviews)
    await served.close()
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    await api.close()
