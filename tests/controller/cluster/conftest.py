from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from meshwright import logs
from meshwright.cluster.api import ApiServer
from meshwright.cluster.credentials import Credentials
from tests.controller.cluster.stub_kube import StubKube


@pytest.fixture(autouse=True)
def no_secrets_left_over() -> Iterator[None]:
    """Tokens of one test must not be blotted out of the next one's log."""
    yield
    logs._known.clear()


@pytest.fixture
def stub() -> Iterator[StubKube]:
    server = StubKube().start()
    yield server
    server.stop()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Callable[..., str]:
    """Writes a kubeconfig for a server; further arguments are fields of its user."""

    def write(server: str, **user: Any) -> str:
        path = tmp_path / "kubeconfig"
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": server}}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        path.write_text(json.dumps(config))
        return str(path)

    return write


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
