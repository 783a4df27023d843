from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from meshwright.cluster.api import ApiServer
from meshwright.cluster.credentials import Credentials
from tests.controller.cluster.stub_kube import StubKube


@pytest.fixture
async def api(stub: StubKube, kubeconfig: Callable[..., str]) -> AsyncIterator[ApiServer]:
    server = ApiServer(await Credentials.find(kubeconfig(stub.url)), timeout=5.0)
    yield server
    await server.close()


@pytest.fixture
def eventually() -> Callable[..., Awaitable[None]]:
    """Waits until a condition holds; fails with its name after a deadline."""

    async def wait(condition: Callable[[], Any], what: str = "", within: float = 30.0) -> None:
        deadline = time.monotonic() + within
        while not condition():
            assert time.monotonic() < deadline, f"not within {within} s: {what or condition}"
            await asyncio.sleep(0.01)

    return wait


@pytest.fixture
def running() -> Callable[..., Any]:
    """Runs coroutines for the length of a block, and cancels them at its end."""

    @asynccontextmanager
    async def run(*coroutines: Any) -> AsyncIterator[list[asyncio.Task[Any]]]:
        tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return run
