"""The operator as a whole listens to agents, and says in the Lease where."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp

from meshwright.cluster.credentials import Credentials
from meshwright.metrics import Metrics
from meshwright.runtime import Runtime
from meshwright.settings import Settings
from tests.controller.cluster.stub_kube import StubKube

URL = "/v1/jobs/nobody/heartbeats"


async def post(port: int) -> tuple[int, dict[str, Any]]:
    """A report without a token, once somebody listens."""
    async with aiohttp.ClientSession() as session, asyncio.timeout(20):
        while True:
            try:
                async with session.post(f"http://127.0.0.1:{port}{URL}") as answer:
                    return answer.status, await answer.json()
            except aiohttp.ClientConnectionError:
                await asyncio.sleep(0.05)


async def test_the_leader_asks_for_a_token_and_the_standby_names_the_leader(
    stub: StubKube, kubeconfig: Callable[..., str], unused_tcp_port_factory: Any
) -> None:
    credentials = await Credentials.find(kubeconfig(stub.url))
    runtimes, ports = [], [unused_tcp_port_factory(), unused_tcp_port_factory()]
    metrics = [Metrics(), Metrics()]
    for port, counted in zip(ports, metrics, strict=True):
        settings = Settings(
            identity=f"operator-{port}",
            lease_namespace="meshwright-system",
            bind_address="127.0.0.1",
            heartbeat_host="127.0.0.1",
            heartbeat_port=port,
            lease_retry_seconds=0.1,
        )
        runtimes.append(Runtime(settings, credentials, counted))
        runtimes[-1].start()
        if len(runtimes) == 1:
            await asyncio.wait_for(runtimes[0].leadership.held.wait(), 20)
    try:
        assert await post(ports[0]) == (401, no_token())
        async with asyncio.timeout(20):
            while (await post(ports[1]))[1].get("leader") != f"http://127.0.0.1:{ports[0]}":
                await asyncio.sleep(0.05)
        lease = stub.get("leases", "meshwright-operator", "meshwright-system")
        assert lease is not None
        assert lease["metadata"]["annotations"] == {"meshwright.dev/heartbeat-address": f"http://127.0.0.1:{ports[0]}"}
        assert metrics[0].registry.get_sample_value("meshwright_heartbeats_total", {"outcome": "unauthenticated"}) == 1
        assert metrics[1].registry.get_sample_value("meshwright_heartbeats_total", {"outcome": "not_leading"})
        assert metrics[0].registry.get_sample_value("trainingjob_silent") == 0
    finally:
        for runtime in runtimes:
            await runtime.stop()


def no_token() -> dict[str, str]:
    error = "send the pod's token for the audience meshwright: Authorization: Bearer TOKEN"
    return {"error": error, "reason": "unauthenticated"}
