from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import kopf
import pytest
from aiohttp import web

from meshwright import kopf_app
from meshwright import runtime as runtime_module
from meshwright.cluster.credentials import Credentials
from meshwright.cluster.health import Health, Unhealthy
from meshwright.kopf_app import kopf_settings, registry_for, serve
from meshwright.metrics import Metrics
from meshwright.runtime import Runtime
from meshwright.settings import Settings
from tests.controller.cluster.stub_kube import StubKube, status

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")  # Kopf leaves a thread pool to the collector.


def a_job(name: str = "gpt") -> dict[str, Any]:
    template = {"spec": {"containers": [{"name": "trainer", "image": "x", "command": ["python", "a.py"]}]}}
    return {
        "apiVersion": "meshwright.dev/v1alpha1",
        "kind": "TrainingJob",
        "metadata": {"name": name, "namespace": "team", "generation": 1, "creationTimestamp": "2026-11-29T12:00:00Z"},
        "spec": {"roles": [{"name": "worker", "replicas": 1, "template": template}]},
    }


def phase_of(stub: StubKube, name: str = "gpt") -> str | None:
    job = stub.get("trainingjobs", name, "team") or {}
    phase: str | None = job.get("status", {}).get("phase")
    return phase


@pytest.fixture
def quick(stub: StubKube, kubeconfig: Callable[..., str], unused_tcp_port: int) -> Callable[..., Settings]:
    """Settings for the stub, with every wait shortened."""

    def make(**changes: Any) -> Settings:
        values: dict[str, Any] = {
            "identity": "operator_1",
            "lease_namespace": "meshwright",
            "lease_duration_seconds": 1.0,
            "lease_renew_deadline_seconds": 0.6,
            "lease_retry_seconds": 0.1,
            "bind_address": "127.0.0.1",
            "metrics_port": 0,
            "heartbeat_port": 0,
            "liveness_port": unused_tcp_port,
            "api_timeout_seconds": 2.0,
            "resync_seconds": 60.0,
            "watch_silence_seconds": 20.0,
            "retry_first_seconds": 0.02,
            "retry_cap_seconds": 0.2,
        }
        if "kubeconfig" not in changes:
            values["kubeconfig"] = kubeconfig(stub.url)
        return Settings(**(values | changes))

    return make


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "KIND_POLL_SECONDS", 0.1)


@pytest.fixture
def operator(stub: StubKube, quick: Callable[..., Settings], eventually: Any) -> Callable[..., Any]:
    """Runs the operator for the length of a block; it must not end before."""

    @asynccontextmanager
    async def run(wait: bool = True, **changes: Any) -> AsyncIterator[asyncio.Task[None]]:
        task = asyncio.ensure_future(serve(quick(**changes)))
        try:
            if wait:
                await eventually(lambda: (stub.watches("trainingjobs") and _leads(stub)) or task.done(), "it leads")
            yield task
            assert not task.done(), "the operator ended"
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    return run


def _leads(stub: StubKube) -> bool:
    lease = stub.get("leases", "meshwright-operator", "meshwright")
    return bool(lease and lease["spec"]["holderIdentity"])


async def works(stub: StubKube, eventually: Any, name: str) -> None:
    """A new job gets its status: watch, leadership and writing all work."""
    stub.put("trainingjobs", a_job(name))
    await eventually(lambda: phase_of(stub, name) == "Pending", f"job {name} is looked at")


async def test_only_kopfs_harmless_handlers_are_used(quick: Callable[..., Settings]) -> None:
    credentials = await Credentials.find(quick().kubeconfig)
    runtime = Runtime(quick(), credentials, Metrics())
    registry = registry_for(runtime, credentials)
    watching = [(h.selector.any_name, h.selector.group) for h in registry._watching.get_all_handlers() if h.selector]
    assert watching == [("trainingjobs", "meshwright.dev")]
    for kind in (registry._changing, registry._spawning, registry._indexing, registry._webhooks):
        assert not list(kind.get_all_handlers())
    activities = [h.activity.value for h in registry._activities.get_all_handlers() if h.activity]
    assert sorted(set(activities)) == ["authentication", "cleanup", "probe", "startup"]
    await runtime.stop()


def test_kopf_never_gives_up_never_scans_and_posts_nothing(quick: Callable[..., Settings]) -> None:
    settings = kopf_settings(quick())
    delays = iter(settings.networking.error_backoffs)  # type: ignore[arg-type]
    assert max(next(delays) for _ in range(1000)) <= 0.2
    assert not hasattr(settings.networking.error_backoffs, "__len__")
    assert settings.scanning.disabled
    assert settings.peering.standalone
    assert settings.posting.enabled is False
    assert settings.queueing.worker_limit is None, "an idle worker keeps its slot: a limit starves"
    assert "kopf" not in settings.persistence.finalizer


async def test_a_job_is_noticed_and_only_its_status_is_written(
    operator: Callable[..., Any], stub: StubKube, eventually: Any
) -> None:
    async with operator():
        await works(stub, eventually, "gpt")
        job = stub.get("trainingjobs", "gpt", "team")
        assert job is not None
        assert not {"finalizers", "annotations"} & set(job["metadata"])
    written = {seen.path for seen in stub.seen if seen.method in ("PATCH", "PUT") and "/leases/" not in seen.path}
    assert written == {"/apis/meshwright.dev/v1alpha1/namespaces/team/trainingjobs/gpt/status"}
    assert not [
        seen for seen in stub.seen if "customresourcedefinitions" in seen.path or seen.path.endswith("/namespaces")
    ]


@pytest.mark.parametrize("code", [403, 500, 503])
async def test_it_outlives_a_server_that_refuses_everything(
    operator: Callable[..., Any], stub: StubKube, eventually: Any, caplog: pytest.LogCaptureFixture, code: int
) -> None:
    """With Kopf's defaults it ends after a minute of this."""
    async with operator() as task:
        stub.fault = lambda _: status(code)
        for kind in ("trainingjobs", "pods", "nodes"):
            stub.end_watches(kind)
        refused = len(stub.seen)
        await eventually(lambda: len(stub.seen) > refused + 60, "it goes on trying")
        assert not task.done()
        stub.fault = None
        await works(stub, eventually, "after")
    assert "Kopf ended" not in caplog.text, "one life is enough"


async def test_it_outlives_a_server_that_was_never_there(
    operator: Callable[..., Any], stub: StubKube, eventually: Any
) -> None:
    stub.fault = lambda _: status(503)
    async with operator(wait=False) as task:
        await eventually(lambda: len(stub.seen) > 30)
        assert not task.done()
        stub.fault = None
        await eventually(lambda: stub.watches("trainingjobs"))
        await works(stub, eventually, "after")


async def test_it_outlives_a_token_that_expires_before_the_next_is_there(
    operator: Callable[..., Any],
    stub: StubKube,
    kubeconfig: Callable[..., str],
    tmp_path: Path,
    eventually: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With Kopf's defaults it ends 2.5 s after a second 401."""
    token = tmp_path / "token"
    token.write_text("token-one")
    stub.tokens = {"token-one"}
    async with operator(kubeconfig=kubeconfig(stub.url, tokenFile=str(token))) as task:
        stub.tokens = {"token-two"}
        for kind in ("trainingjobs", "pods", "nodes"):
            stub.end_watches(kind)
        refused = len(stub.seen)
        await eventually(lambda: len(stub.seen) > refused + 30)
        assert not task.done()
        token.write_text("token-two\n")
        await works(stub, eventually, "after")
    assert "Kopf ended" not in caplog.text, "one life is enough"


async def test_a_life_after_kopf_ends(
    operator: Callable[..., Any], stub: StubKube, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Kopf ends on any ERROR event but 410, and no setting prevents it."""
    async with operator():
        await works(stub, eventually, "before")
        stub.emit("trainingjobs", {"type": "ERROR", "object": {"code": 500, "message": "etcd has no leader"}})
        await eventually(lambda: "beginning again" in caplog.text)
        await eventually(lambda: stub.watches("trainingjobs"))
        await works(stub, eventually, "after")


async def test_it_waits_for_its_kind(operator: Callable[..., Any], stub: StubKube, eventually: Any) -> None:
    """Kopf looks for kinds once, at its start; started before the CRD it would serve nothing, for ever."""
    stub.absent = {"trainingjobs"}
    async with operator(wait=False):
        await eventually(lambda: _leads(stub))
        stub.absent = set()
        await eventually(lambda: stub.watches("trainingjobs"))
        await works(stub, eventually, "after")


async def test_it_waits_for_its_kind_to_come_back(
    operator: Callable[..., Any], stub: StubKube, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with operator():
        stub.absent = {"trainingjobs"}
        stub.end_watches("trainingjobs")
        await eventually(lambda: "waiting for their CRD" in caplog.text)
        stub.absent = set()
        await eventually(lambda: stub.watches("trainingjobs"))
        await works(stub, eventually, "after")


async def test_namespaced_it_asks_for_nothing_outside(
    operator: Callable[..., Any], stub: StubKube, eventually: Any
) -> None:
    async with operator(namespaces=("team",), capacity_reader=False):
        await works(stub, eventually, "gpt")
    lists = {seen.path for seen in stub.seen if seen.path.endswith(("/trainingjobs", "/pods", "/nodes"))}
    assert lists == {
        "/apis/meshwright.dev/v1alpha1/namespaces/team/trainingjobs",
        "/api/v1/namespaces/team/pods",
    }


async def test_it_does_not_lead_without_its_rights(
    operator: Callable[..., Any], stub: StubKube, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    stub.denied = {("create", "pods")}
    async with operator(wait=False):
        await eventually(lambda: "create pods cluster-wide" in caplog.text)
        await eventually(lambda: stub.watches("trainingjobs"))
        assert not _leads(stub)
        stub.denied = set()
        await eventually(lambda: _leads(stub))


class TestProbes:
    @pytest.fixture
    def look(self, unused_tcp_port: int) -> Callable[[], Awaitable[tuple[int, Any]]]:
        async def ask() -> tuple[int, Any]:
            url = f"http://127.0.0.1:{unused_tcp_port}/healthz"
            async with aiohttp.ClientSession() as session:
                for _ in range(500):
                    try:
                        async with session.get(url) as answer:
                            return answer.status, (await answer.json() if answer.status == 200 else None)
                    except aiohttp.ClientConnectionError:
                        await asyncio.sleep(0.02)
            raise AssertionError("no liveness server")

        return ask

    async def test_all_is_well(self, operator: Callable[..., Any], look: Any) -> None:
        async with operator():
            code, found = await look()
        assert code == 200
        assert set(found) == {"watches", "lease", "jobs", "loop"}
        assert set(found["watches"]) == {"pods", "nodes"}

    async def test_a_server_that_is_down_is_no_reason_to_restart(
        self, operator: Callable[..., Any], stub: StubKube, look: Any
    ) -> None:
        stub.fault = lambda _: status(503)
        async with operator(wait=False):
            code, _ = await look()
        assert code == 200

    @pytest.mark.parametrize("probe", ["watches", "lease", "jobs", "loop"])
    async def test_what_stands_still_fails_at_once(
        self, operator: Callable[..., Any], look: Any, probe: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Kopf would retry a probe that raises just any error for a minute, and answer nothing meanwhile."""

        def fail(self: Health) -> None:
            raise Unhealthy("for the test")

        monkeypatch.setattr(Health, probe, fail)
        async with operator():
            code, _ = await asyncio.wait_for(look(), 5)
        assert code == 500


class TestSignals:
    @pytest.fixture
    async def ends(self, stub: StubKube, quick: Callable[..., Settings], eventually: Any) -> Any:
        """Starts an operator that leads, sends signals, and returns how long it took to end."""

        async def run(*signals: signal.Signals, before: Callable[[], None] = lambda: None) -> float:
            task = asyncio.ensure_future(serve(quick()))
            await eventually(lambda: stub.watches("trainingjobs") and _leads(stub))
            before()
            loop = asyncio.get_running_loop()
            began = loop.time()
            for number in signals:
                signal.raise_signal(number)
            await asyncio.wait_for(task, 20)
            return loop.time() - began

        return run

    @pytest.mark.parametrize("signals", [[signal.SIGTERM], [signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]])
    async def test_it_ends_at_once_and_gives_up_the_lease(
        self, ends: Any, stub: StubKube, signals: list[signal.Signals], caplog: pytest.LogCaptureFixture
    ) -> None:
        assert await ends(*signals) < 5
        assert not _leads(stub)
        assert "InvalidStateError" not in caplog.text

    async def test_a_server_that_does_not_answer_delays_it_little(self, ends: Any, stub: StubKube) -> None:
        def freeze() -> None:
            stub.fault = lambda _: _Never()

        assert await ends(signal.SIGTERM, before=freeze) < 5


class _Never(web.Response):
    """An answer that does not come."""

    async def prepare(self, request: web.BaseRequest) -> Any:
        await asyncio.sleep(30)


async def test_a_signal_between_two_lives_ends_it(
    stub: StubKube, quick: Callable[..., Settings], eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(**_: Any) -> None:
        raise RuntimeError("Kopf cannot even start")

    monkeypatch.setattr(kopf, "operator", fail)
    monkeypatch.setattr(kopf_app, "Delays", lambda *_: [30.0] * 10)
    task = asyncio.ensure_future(serve(quick()))
    await eventually(lambda: stub.seen)
    await eventually(lambda: asyncio.get_running_loop()._signal_handlers)  # type: ignore[attr-defined]
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(task, 5)
