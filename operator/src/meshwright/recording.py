"""What the world is told of a pass: events on the job, metrics, and the log from which it can be decided again."""

from __future__ import annotations

import logging
from pathlib import Path

from meshwright.cluster.events import Event, EventRecorder, Subject
from meshwright.jobs import KnownJob
from meshwright.lifecycle.announce import announcements
from meshwright.lifecycle.codec import observation_to_json
from meshwright.lifecycle.model import Decision, Observation
from meshwright.lifecycle.phases import TERMINAL
from meshwright.metrics import Metrics
from meshwright_api import names
from meshwright_api.job import Metadata
from meshwright_api.status import Phase, TrainingJobStatus

logger = logging.getLogger(__name__)

MAX_LOG_BYTES = 64 * 2**20
"""A decision log that has grown to this is put aside as `.1`, over the one before."""


class JobRecorder:
    """Tells people what passes did; never fails a pass."""

    def __init__(self, events: EventRecorder, metrics: Metrics, decision_log_dir: str = "") -> None:
        self._events = events
        self._metrics = metrics
        self._log = Path(decision_log_dir, "decisions.jsonl") if decision_log_dir else None

    def wrote(self, known: KnownJob, old: TrainingJobStatus, new: TrainingJobStatus) -> None:
        """Posts the events of a status write and counts what it says."""
        meta = known.metadata
        subject = Subject(meta.name, meta.namespace, meta.uid, meta.resource_version)
        for told in announcements(old, new):
            key = f"{new.attempt}/{new.incarnation}/{new.restarts}"
            self._events.record(Event(subject, told.reason, told.message, new.phase or "None", key, told.kind))
        self._count(meta, old, new)

    def passed(self, outcome: str, seconds: float, error: str = "") -> None:
        """Counts a pass."""
        self._metrics.passes.labels(outcome).inc()
        self._metrics.pass_seconds.observe(seconds)
        if error:
            self._metrics.pass_errors.labels(error).inc()

    def decided(self, observation: Observation, decision: Decision) -> None:
        """Appends what was decided from to the decision log, if there is one."""
        if self._log is None:
            return
        try:
            self._log.parent.mkdir(parents=True, exist_ok=True)
            if self._log.exists() and self._log.stat().st_size > MAX_LOG_BYTES:
                self._log.replace(self._log.with_suffix(".jsonl.1"))
            with self._log.open("a") as file:
                file.write(observation_to_json(observation) + "\n")
        except OSError as error:
            logger.warning("the decision log cannot be written: %s", error)

    def _count(self, meta: Metadata, old: TrainingJobStatus, new: TrainingJobStatus) -> None:
        m = self._metrics
        if len(new.incidents) and (not old.incidents or new.incidents[-1].opened_at != old.incidents[-1].opened_at):
            last = new.incidents[-1]
            m.incidents.labels(meta.namespace, last.cause.value, str(last.charged).lower()).inc()
        if new.phase in TERMINAL and old.phase not in TERMINAL and new.phase is not None:
            m.finished.labels(meta.namespace, new.phase.value).inc()
        if old.start_time is None and new.start_time is not None and meta.creation_timestamp is not None:
            m.admission_wait.observe(max(0.0, (new.start_time - meta.creation_timestamp).total_seconds()))
        if new.phase is Phase.RUNNING and old.phase is not Phase.RUNNING:
            self._count_start(new)

    def _count_start(self, new: TrainingJobStatus) -> None:
        running = next((c.last_transition_time for c in new.conditions if c.type == names.RUNNING), None)
        if running is not None and new.admitted_time is not None:
            self._metrics.start.observe(max(0.0, (running - new.admitted_time).total_seconds()))
        if new.incidents and new.incidents[-1].seconds_lost is not None:
            self._metrics.lost.observe(new.incidents[-1].seconds_lost)
