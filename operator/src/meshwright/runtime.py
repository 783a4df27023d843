"""`Runtime`: everything that runs beside Kopf in one process, put together, started and stopped in order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from meshwright.cluster.api import ApiServer
from meshwright.cluster.backoff import Backoff, Delays
from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.cluster.credentials import Credentials
from meshwright.cluster.errors import ApiError
from meshwright.cluster.events import EventRecorder
from meshwright.cluster.health import Health, LagMeter
from meshwright.cluster.lease import Leadership, LeaseTimes
from meshwright.cluster.permissions import check, explain, needed
from meshwright.cluster.reflector import Timings
from meshwright.cluster.resources import TRAININGJOBS
from meshwright.controller import Reconciler
from meshwright.heartbeats.silence import Verdict
from meshwright.heartbeats.wiring import heartbeat_server
from meshwright.metrics import Metrics
from meshwright.recording import JobRecorder
from meshwright.settings import Settings

logger = logging.getLogger(__name__)

KIND_POLL_SECONDS: Final = 2.0


class Runtime:
    """One life of the operator: client, caches, leadership, reconciler.

    Attributes:
        health: The probes.
        stop_kopf: Set to end Kopf, for a new life or for good.
        born_again: Whether a new life is wanted.
    """

    def __init__(self, settings: Settings, credentials: Credentials, metrics: Metrics) -> None:
        self.stop_kopf = asyncio.Event()
        self.born_again = False
        self._settings = settings
        self._metrics = metrics
        self._delays = Delays(settings.retry_first_seconds, settings.retry_cap_seconds)
        self.api = ApiServer(
            credentials,
            observer=metrics,
            concurrency=settings.api_concurrency,
            timeout=settings.api_timeout_seconds,
        )
        timings = Timings(silence_seconds=settings.watch_silence_seconds, delays=self._delays)
        self.pods = PodCache(self.api, (None,) if settings.capacity_reader else settings.watched, timings)
        self.nodes = NodeCache(self.api, timings, readable=settings.capacity_reader)
        self.leadership = self._candidate()
        self.api.before_write = self.leadership.require
        self.events = EventRecorder(
            self.api, settings.identity, on_result=lambda result: metrics.events.labels(result).inc()
        )
        self.reconciler = Reconciler(
            self.api,
            self.pods,
            self.nodes,
            self.leadership,
            settings,
            JobRecorder(self.events, metrics, settings.decision_log_dir),
        )
        self.heartbeats = heartbeat_server(
            settings, self.api, self.reconciler.jobs, self.pods, self.leadership, self.reconciler.board, metrics
        )
        self._lag = LagMeter()
        self._seeking = False
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self.health = Health(
            watches=(*self.pods.reflectors, *self.nodes.reflectors),
            lease_stuck=lambda: self.leadership.stuck() if self._seeking else 0.0,
            oldest_job=self.reconciler.oldest_unreconciled_seconds,
            lag=lambda: self._lag.lag,
        )
        self._measure()

    def start(self) -> None:
        """Starts everything and returns at once: whether the API server answers yet does not matter."""
        works = {
            "pods": self.pods.run,
            "nodes": self.nodes.run,
            "leadership": self._lead_when_permitted,
            "events": self.events.run,
            "lag": self._lag.run,
            "reconciler": self.reconciler.run,
        }
        settings = self._settings
        if settings.heartbeat_port:
            works["heartbeats"] = lambda: self.heartbeats.run(settings.bind_address, settings.heartbeat_port)
        for name, work in works.items():
            self._tasks[name] = asyncio.create_task(self._for_ever(name, work), name=f"meshwright {name}")

    async def stop(self) -> None:
        """Stops writing, then gives up the lease, then stops listening."""
        self.stop_kopf.set()  # Kopf leaves a task behind that waits for this, and would wait 5 s for that task.
        for name in ("reconciler", "events", "leadership"):
            await self._end(name)
        for name in tuple(self._tasks):
            await self._end(name)
        await self.api.close()

    async def kind_is_served(self) -> bool:
        """Whether the API server knows TrainingJobs; False as well when it cannot be asked."""
        try:
            found = await self.api.request("GET", TRAININGJOBS.root, label=("get", "apis"))
        except ApiError:
            return False
        resources = found.get("resources") or []
        return any(isinstance(r, dict) and r.get("name") == TRAININGJOBS.plural for r in resources)

    async def end_when_kind_appears(self) -> None:
        """Kopf looks for its kinds once, at its start: when ours comes later, it has to start again."""
        logger.warning("the API server does not serve TrainingJobs yet; waiting for their CRD")
        while not await self.kind_is_served():
            await asyncio.sleep(KIND_POLL_SECONDS)
        logger.info("the API server serves TrainingJobs now")
        self.begin_anew()

    def begin_anew(self) -> None:
        """Ends this life for another one in the same process."""
        self.born_again = True
        self.stop_kopf.set()

    def _candidate(self) -> Leadership:
        settings, metrics = self._settings, self._metrics
        return Leadership(
            self.api,
            namespace=settings.lease_namespace,
            name=settings.lease_name,
            identity=settings.identity,
            times=LeaseTimes(
                settings.lease_duration_seconds, settings.lease_renew_deadline_seconds, settings.lease_retry_seconds
            ),
            address=settings.own_heartbeat_address,
            on_change=lambda leads: metrics.leader.set(leads),
        )

    async def _end(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _for_ever(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """None of the loops ends by itself; one that does, by a fault of ours, begins again."""
        backoff = Backoff(self._delays)
        while True:
            try:
                await work()
                logger.error("%s ended, which it never should; beginning again", name)
            except Exception:
                logger.exception("%s failed; beginning again", name)
            await asyncio.sleep(backoff.delay(at_least=1.0))

    async def _lead_when_permitted(self) -> None:
        """A process that lacks rights does not compete for the lease: another may have them."""
        settings = self._settings
        rights = needed(
            settings.namespaces,
            capacity_reader=settings.capacity_reader,
            own_namespace=settings.lease_namespace,
            lease_name=settings.lease_name,
            heartbeats=bool(settings.heartbeat_port),
            isolation=settings.isolate_jobs,
            domains=any(profile.compute_domain for profile in settings.profiles.all),
        )
        backoff = Backoff(self._delays)
        while rights:
            answers = await check(self.api, rights)
            self._metrics.permissions.set(len(answers.denied))
            if answers.denied:
                logger.error("%s", explain(answers.denied, namespaced=bool(settings.namespaces)))
            if answers.error:
                logger.warning("%d rights cannot be checked yet: %s", len(answers.unanswered), answers.error)
            if rights := (*answers.denied, *answers.unanswered):
                await asyncio.sleep(backoff.delay(at_least=1.0))
        self._seeking = True
        await self.leadership.run()

    def _measure(self) -> None:
        metrics, reconciler, lag = self._metrics, self.reconciler, self._lag
        for pods in self.pods.reflectors:
            metrics.watch(pods)
        for nodes in self.nodes.reflectors:
            metrics.watch(nodes)
        metrics.queue.set_function(lambda: len(reconciler))
        metrics.waiting.set_function(reconciler.waiting)
        metrics.jobs.count = reconciler.count
        metrics.reporting.set_function(lambda: self.heartbeats.verdicts()[Verdict.HEARD])
        metrics.silent.set_function(lambda: self.heartbeats.verdicts()[Verdict.SILENT])
        metrics.oldest.set_function(reconciler.oldest_unreconciled_seconds)
        metrics.lag.set_function(lambda: lag.lag)
