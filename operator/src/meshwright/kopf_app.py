"""Everything that touches Kopf: its settings, its handlers, and a life after it ends.

Kopf watches TrainingJobs, serves `/healthz`, and owns start and stop. Its handlers only wake: no annotations, no
finalizers, no timers, no daemons, no indexes (their start-up is quadratic), no worker limit (it starves), no peering.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable
from typing import Any, Final

import kopf

from meshwright.cluster.backoff import Backoff, Delays
from meshwright.cluster.credentials import Credentials
from meshwright.metrics import Metrics, served
from meshwright.runtime import Runtime
from meshwright.settings import Settings
from meshwright_api import names

logger = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def registry_for(runtime: Runtime, credentials: Credentials) -> kopf.OperatorRegistry:
    """All of Kopf's handlers."""
    registry = kopf.OperatorRegistry()
    permanent = kopf.ErrorsMode.PERMANENT  # A probe must fail at once; by default Kopf would retry it for a minute.

    @kopf.on.startup(id="start", registry=registry)
    async def start(**_: Any) -> None:
        runtime.start()

    @kopf.on.cleanup(id="stop", registry=registry)
    async def stop(**_: Any) -> None:
        await runtime.stop()

    @kopf.on.login(id="login", registry=registry)
    async def login(**_: Any) -> kopf.AiohttpSession:
        return kopf.AiohttpSession(server=credentials.server, aiohttp_session=credentials.authorized_session())

    @kopf.on.event(names.GROUP, names.VERSION, names.PLURAL, id="notice", registry=registry)
    async def notice(event: kopf.RawEvent, **_: Any) -> None:
        runtime.reconciler.notice(event["type"], dict(event["object"]))

    @kopf.on.probe(id="watches", errors=permanent, registry=registry)
    async def watches(**_: Any) -> dict[str, float]:
        return runtime.health.watches()

    @kopf.on.probe(id="lease", errors=permanent, registry=registry)
    async def lease(**_: Any) -> float:
        return runtime.health.lease()

    @kopf.on.probe(id="jobs", errors=permanent, registry=registry)
    async def jobs(**_: Any) -> float:
        return runtime.health.jobs()

    @kopf.on.probe(id="loop", errors=permanent, registry=registry)
    async def loop(**_: Any) -> float:
        return runtime.health.loop()

    return registry


def kopf_settings(settings: Settings) -> kopf.OperatorSettings:
    """Kopf's settings, each against a fault that was seen."""
    kopf_side = kopf.OperatorSettings()
    # The default is eight delays, and the end of the process after a minute of 5xx or 403.
    kopf_side.networking.error_backoffs = Delays(settings.retry_first_seconds, settings.retry_cap_seconds)
    kopf_side.networking.request_timeout = settings.api_timeout_seconds
    kopf_side.networking.connect_timeout = 5.0
    kopf_side.watching.inactivity_timeout = settings.watch_silence_seconds
    kopf_side.watching.chunk_size = 500
    # Scanning needs rights on CRDs and namespaces that nothing else here needs.
    kopf_side.scanning.disabled = True
    kopf_side.posting.enabled = False
    kopf_side.posting.loggers = False
    # Two operators of equal priority would both pause for ever; the Lease does this job.
    kopf_side.peering.standalone = True
    kopf_side.persistence.finalizer = f"{names.GROUP}/operator"
    kopf_side.queueing.exit_timeout = 1.0
    kopf_side.process.ultimate_exiting_timeout = 60.0
    return kopf_side


async def serve(settings: Settings) -> None:
    """Runs the operator until a signal ends it.

    Kopf ends itself on some errors that no setting prevents (an ERROR event other than 410, a deleted CRD); then
    another life begins in the same process, after a pause.

    Raises:
        ConfigError: There are no credentials.
    """
    credentials = await Credentials.find(settings.kubeconfig or None, settings.context or None)
    stopping = asyncio.Event()
    _on_signals(stopping.set)
    backoff = Backoff(Delays(settings.retry_first_seconds, settings.retry_cap_seconds))
    metrics = Metrics()
    with served(metrics, settings.bind_address, settings.metrics_port):
        while await _live(settings, credentials, metrics, stopping):
            _on_signals(stopping.set)
            try:
                await asyncio.wait_for(stopping.wait(), backoff.delay())
            except TimeoutError:
                continue
            return


async def _live(settings: Settings, credentials: Credentials, metrics: Metrics, stopping: asyncio.Event) -> bool:
    """One life; returns whether there should be another."""
    runtime = Runtime(settings, credentials, metrics)
    ready = asyncio.Event()
    helpers = [asyncio.create_task(_take_over_signals(ready, stopping, runtime))]
    try:
        if not await runtime.kind_is_served():
            helpers.append(asyncio.create_task(runtime.end_when_kind_appears()))
        await _run_kopf(settings, credentials, runtime, ready)
    except Exception:
        logger.exception("Kopf ended; beginning again")
        return not stopping.is_set()
    finally:
        for task in helpers:
            task.cancel()
        await asyncio.gather(*helpers, return_exceptions=True)
        await runtime.stop()
    return runtime.born_again and not stopping.is_set()


async def _run_kopf(settings: Settings, credentials: Credentials, runtime: Runtime, ready: asyncio.Event) -> None:
    endpoint = f"http://{settings.bind_address}:{settings.liveness_port}/healthz" if settings.liveness_port else None
    await kopf.operator(
        registry=registry_for(runtime, credentials),
        settings=kopf_settings(settings),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        liveness_endpoint=endpoint,
        stop_flag=runtime.stop_kopf,
        ready_flag=ready,
    )


async def _take_over_signals(ready: asyncio.Event, stopping: asyncio.Event, runtime: Runtime) -> None:
    """Kopf installs handlers that break on a second signal, and do not say that a signal was the reason to end."""
    await ready.wait()

    def end() -> None:
        stopping.set()
        runtime.stop_kopf.set()

    _on_signals(end)
    if stopping.is_set():
        end()


def _on_signals(call: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, call)
