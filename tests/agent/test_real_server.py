"""Tokens, reviews, Secret and Lease of a real API server, with the rights of the chart; and the agent's own client."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from devcluster.cluster import Cluster
from devcluster.ports import free_port
from meshwright.cluster.api import ApiServer
from meshwright.cluster.caches import PodCache
from meshwright.cluster.credentials import Credentials
from meshwright.cluster.lease import Leadership
from meshwright.heartbeats.wiring import heartbeat_server
from meshwright.jobs import Jobs
from meshwright.metrics import Metrics
from meshwright.progress import ProgressBoard
from meshwright.rendering.gang import FrozenPlan, pod_manifest
from meshwright.settings import Settings
from meshwright_agent.errors import Unanswered
from meshwright_agent.uplink import Uplink
from meshwright_agent.wire import Progress, Report
from meshwright_api import names
from meshwright_api.job import parse_job
from tests.controller.rendering.jobs import a_role, frozen
from tests.installing import ACCOUNT, SYSTEM, install

pytestmark = pytest.mark.cluster

Json = dict[str, Any]


class Gang:
    """A job with a committed plan and real pods, as far as an API server without nodes has them."""

    def __init__(self, cluster: Cluster, namespace: str, name: str) -> None:
        self.cluster, self.namespace = cluster, namespace
        path = f"/apis/{names.API_VERSION}/namespaces/{namespace}/{names.PLURAL}"
        body = {
            "apiVersion": names.API_VERSION,
            "kind": names.KIND,
            "metadata": {"name": name},
            "spec": {"roles": [a_role(2)], "suspend": True},
        }
        self.raw: Json = cluster.request("POST", path, body)
        self.uid: str = self.raw["metadata"]["uid"]
        self.plan: FrozenPlan = frozen(parse_job(self.raw), attempt=3, incarnation=1)
        maps = f"/api/v1/namespaces/{namespace}/configmaps"
        for manifest in (self.plan.plan_config_map(), self.plan.placement_config_map()):
            cluster.request("POST", maps, manifest)
        status = {"attempt": 3, "incarnation": 1, "planSHA256": self.plan.sha256}
        self.raw = cluster.request("PATCH", f"{path}/{name}/status", {"status": status})
        self.pods = [self._pod(index) for index in range(2)]

    def _pod(self, index: int) -> Json:
        manifest = pod_manifest(self.plan, "worker", index)
        # Without nodes nothing else would keep it as it is.
        manifest["spec"]["schedulingGates"] = [{"name": "meshwright.dev/test"}]
        pod: Json = self.cluster.request("POST", f"/api/v1/namespaces/{self.namespace}/pods", manifest)
        return pod

    def token(self, index: int, audience: str = "meshwright") -> str:
        """A token as the kubelet would put it into the pod."""
        bound = {"kind": "Pod", "apiVersion": "v1", **{k: self.pods[index]["metadata"][k] for k in ("name", "uid")}}
        spec = {"audiences": [audience], "expirationSeconds": 600, "boundObjectRef": bound}
        path = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default/token"
        return str(self.cluster.request("POST", path, {"spec": spec})["status"]["token"])

    def report(self, index: int) -> Report:
        name = self.pods[index]["metadata"]["name"]
        return Report(3, 1, "worker", index, name, progress=Progress(step=42))


class Operators:
    """Two replicas with the rights of the chart; `leader` leads."""

    def __init__(self) -> None:
        self.boards: list[ProgressBoard] = []
        self.leaderships: list[Leadership] = []
        self.ports: list[int] = []
        self.jobs = Jobs()

    @property
    def leader(self) -> int:
        return next(i for i, leadership in enumerate(self.leaderships) if leadership.held.is_set())


@pytest.fixture
async def operators(cluster: Cluster) -> AsyncIterator[Operators]:
    kubeconfig = install(cluster)
    made = Operators()
    async with AsyncExitStack() as stack:
        tasks: list[asyncio.Task[None]] = []
        for name in "ab":
            api = ApiServer(await Credentials.find(str(kubeconfig)))
            stack.push_async_callback(api.close)
            port = free_port()
            settings = Settings(
                lease_namespace=SYSTEM,
                lease_name=ACCOUNT,
                identity=name,
                heartbeat_port=port,
                heartbeat_host="127.0.0.1",
            )
            leadership = Leadership(
                api,
                namespace=SYSTEM,
                name=ACCOUNT,
                identity=name,
                address=settings.own_heartbeat_address,
            )
            api.before_write = leadership.require
            pods, board = PodCache(api), ProgressBoard()
            server = heartbeat_server(settings, api, made.jobs, pods, leadership, board, Metrics())
            tasks += [
                asyncio.create_task(work) for work in (pods.run(), leadership.run(), server.run("127.0.0.1", port))
            ]
            made.boards.append(board)
            made.leaderships.append(leadership)
            made.ports.append(port)
            await pods.wait_synced()
        async with asyncio.timeout(60):
            while {leadership.holder_address for leadership in made.leaderships} & {""} or not any(
                leadership.held.is_set() for leadership in made.leaderships
            ):
                await asyncio.sleep(0.05)
        yield made
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def send(port: int, gang: Gang, index: int, token: str, folder: Path) -> Any:
    """Sends a report as the agent does."""
    path = folder / "token"
    path.write_text(token)
    uplink = Uplink(f"http://127.0.0.1:{port}", gang.uid, str(path))
    return await asyncio.to_thread(uplink.send, gang.report(index))


async def refusal(port: int, gang: Gang, index: int, token: str, folder: Path) -> str:
    with pytest.raises(Unanswered) as caught:
        await send(port, gang, index, token, folder)
    return str(caught.value)


async def test_a_pod_is_known_by_its_token_and_by_nothing_else(
    cluster: Cluster, namespace: str, operators: Operators, tmp_path: Path
) -> None:
    ours, other = Gang(cluster, namespace, "ours"), Gang(cluster, namespace, "other")
    for gang in (ours, other):
        operators.jobs.put(gang.raw)
    leader = operators.ports[operators.leader]
    standby = operators.ports[1 - operators.leader]

    async with asyncio.timeout(30):  # The pods reach the caches a moment later.
        while True:
            try:
                answer = await send(leader, ours, 0, ours.token(0), tmp_path)
                break
            except Unanswered as error:
                if "403" not in str(error):
                    raise
                await asyncio.sleep(0.1)
    assert (answer.attempt, answer.plan_sha256) == (3, ours.plan.sha256)
    progress = operators.boards[operators.leader].latest(ours.uid)
    assert progress is not None
    assert progress.step == 42

    through_standby = await send(standby, ours, 1, ours.token(1), tmp_path)
    assert through_standby.key == answer.key != ""
    assert operators.boards[1 - operators.leader].latest(ours.uid) is None
    assert (await send(leader, other, 0, other.token(0), tmp_path)).key != answer.key

    for_the_api_server = ours.token(0, "https://kubernetes.default.svc")
    assert "401" in await refusal(leader, ours, 0, for_the_api_server, tmp_path)
    assert "401" in await refusal(leader, ours, 0, ours.token(0, "vault"), tmp_path)
    assert "403" in await refusal(leader, ours, 0, ours.token(1), tmp_path), "its neighbour's"
    assert "403" in await refusal(leader, ours, 0, other.token(0), tmp_path), "another job's"

    secret = cluster.request("GET", f"/api/v1/namespaces/{SYSTEM}/secrets/{ACCOUNT}-keys")
    assert list(secret["data"]) == ["master"]


async def test_a_plan_is_fetched_from_what_the_api_server_holds(
    cluster: Cluster, namespace: str, operators: Operators, tmp_path: Path
) -> None:
    gang = Gang(cluster, namespace, "planned")
    operators.jobs.put(gang.raw)
    url = f"http://127.0.0.1:{operators.ports[operators.leader]}/v1/jobs/{gang.uid}/plan"
    headers = {"Authorization": f"Bearer {gang.token(0)}"}
    async with aiohttp.ClientSession(headers=headers) as session, asyncio.timeout(30):
        while True:
            async with session.get(f"{url}/3") as answer:
                if answer.status == 200:
                    assert await answer.text() == gang.plan.plan_text
                    break
            await asyncio.sleep(0.1)
        async with session.get(f"{url}/2") as answer:
            assert answer.status == 404
