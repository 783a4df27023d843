"""Every metric, once. `trainingjob_*` speaks of jobs, `meshwright_*` of the operator itself; units are base units."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from typing import Final, Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from meshwright_api.status import Cause

_FAST: Final = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30)
_SLOW: Final = (1, 3, 10, 30, 60, 120, 300, 600, 1800, 3600, 4 * 3600, 24 * 3600)


def operator_version() -> str:
    """Version of the installed operator."""
    try:
        return version("meshwright-operator")
    except PackageNotFoundError:
        return "unknown"


class Watch(Protocol):
    """What is measured of a watch."""

    relists: int
    malformed: int

    @property
    def name(self) -> str:
        """What it watches."""

    def age(self) -> float:
        """Seconds since the server's last word."""


class JobCounts:
    """`trainingjob_jobs`, counted when it is asked for: nothing to keep in step with what happens to jobs.

    Attributes:
        count: Says how many jobs there are by (namespace, phase). Called from the thread that serves the metrics.
    """

    def __init__(self) -> None:
        self.count: Callable[[], Mapping[tuple[str, str], int]] = dict

    def collect(self) -> Iterator[Metric]:
        """The series of this moment."""
        family = GaugeMetricFamily(
            "trainingjob_jobs", "TrainingJobs by namespace and phase.", labels=["namespace", "phase"]
        )
        for labels, number in self.count().items():
            family.add_metric(labels, number)
        yield family


class Metrics:
    """All metrics of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        Gauge("meshwright_build_info", "Always 1.", ["version"], registry=self.registry).labels(operator_version()).set(
            1
        )
        self._of_jobs(self.registry)
        self._of_passes(self.registry)
        self._of_agents(self.registry)
        self._of_the_api_server(self.registry)

    def _of_jobs(self, r: CollectorRegistry) -> None:
        # Never a job's or a pod's name as a label: the number of series must not grow with use.
        self.jobs = JobCounts()
        r.register(self.jobs)
        self.waiting = Gauge("trainingjob_waiting", "Gangs that wait for room.", registry=r)
        self.incidents = Counter(
            "trainingjob_incidents",
            f"Judged incidents. cause: {', '.join(Cause)}. charged: true (counts against maxRestarts), false.",
            ["namespace", "cause", "charged"],
            registry=r,
        )
        self.finished = Counter(
            "trainingjob_finished", "Jobs that ended. phase: Succeeded, Failed.", ["namespace", "phase"], registry=r
        )
        self.admission_wait = Histogram(
            "trainingjob_admission_wait_seconds", "From creation to the first admission.", buckets=_SLOW, registry=r
        )
        self.start = Histogram(
            "trainingjob_start_seconds", "From admission until every pod ran.", buckets=_SLOW, registry=r
        )
        self.lost = Histogram(
            "trainingjob_incident_lost_seconds",
            "From an incident until every pod of the next attempt ran.",
            buckets=_SLOW,
            registry=r,
        )

    def _of_passes(self, r: CollectorRegistry) -> None:
        self.leader = Gauge("meshwright_leader", "1 while this process leads.", registry=r)
        self.passes = Counter(
            "meshwright_passes",
            "Passes over a job. outcome: done, error, not_leading.",
            ["outcome"],
            registry=r,
        )
        self.pass_seconds = Histogram("meshwright_pass_seconds", "Time of one pass.", buckets=_FAST, registry=r)
        self.pass_errors = Counter(
            "meshwright_pass_errors", "Passes that failed, by type of error.", ["error"], registry=r
        )
        self.queue = Gauge("meshwright_work_queue_length", "Jobs that wait for a pass.", registry=r)
        self.oldest = Gauge(
            "meshwright_oldest_unreconciled_seconds", "For how long the longest waiting job has waited.", registry=r
        )

    def _of_agents(self, r: CollectorRegistry) -> None:
        self.heartbeats = Counter(
            "meshwright_heartbeats",
            "Reports of agents. outcome: accepted, malformed, unauthenticated, forbidden, unknown, too_large, "
            "not_leading, too_many, not_ready, unexpected.",
            ["outcome"],
            registry=r,
        )
        self.reporting = Gauge("trainingjob_reporting", "Jobs whose agents are heard.", registry=r)
        self.silent = Gauge(
            "trainingjob_silent", "Jobs whose agents were heard, and not for heartbeatTimeoutSeconds.", registry=r
        )

    def heartbeat(self, outcome: str) -> None:
        """Counts one report of an agent."""
        self.heartbeats.labels(outcome).inc()

    def _of_the_api_server(self, r: CollectorRegistry) -> None:
        self.api_requests = Counter(
            "meshwright_api_requests",
            "Requests to the API server. code: HTTP status, 0 when no answer came.",
            ["verb", "resource", "code"],
            registry=r,
        )
        self.api_seconds = Histogram(
            "meshwright_api_request_seconds", "Time of one request.", ["verb"], buckets=_FAST, registry=r
        )
        self.watch_age = Gauge(
            "meshwright_watch_age_seconds",
            "Time since the API server's last word on a watch (bookmarks come once a minute).",
            ["watch"],
            registry=r,
        )
        self.relists = Gauge(
            "meshwright_watch_relists", "Lists after the first, by watch, since start.", ["watch"], registry=r
        )
        self.malformed = Gauge(
            "meshwright_watch_malformed",
            "Objects that could not be read, by watch, since start.",
            ["watch"],
            registry=r,
        )
        self.events = Counter(
            "meshwright_events", "Kubernetes events. result: posted, dropped, failed.", ["result"], registry=r
        )
        self.permissions = Gauge("meshwright_missing_permissions", "Rights that the operator lacks.", registry=r)
        self.lag = Gauge("meshwright_event_loop_lag_seconds", "How late the event loop woke last.", registry=r)

    def watch(self, watch: Watch) -> None:
        """Measures a watch from now on, in place of an earlier one of its name."""
        self.watch_age.labels(watch.name).set_function(watch.age)
        self.relists.labels(watch.name).set_function(lambda: watch.relists)
        self.malformed.labels(watch.name).set_function(lambda: watch.malformed)

    def api_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """Counts one finished request to the API server."""
        self.api_requests.labels(verb, resource, str(code)).inc()
        self.api_seconds.labels(verb).observe(seconds)


@contextmanager
def served(metrics: Metrics, address: str, port: int) -> Iterator[None]:
    """Serves `/metrics` from a thread, so that it answers even while the event loop is busy; port 0 serves nothing."""
    if not port:
        yield
        return
    server, thread = start_http_server(port, addr=address, registry=metrics.registry)
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
