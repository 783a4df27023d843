"""`Reconciler`: which job needs a pass, and when. Knows nothing of what a pass decides."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, Final

from meshwright.cluster.api import ApiServer
from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.cluster.errors import ApiError, NotLeading
from meshwright.cluster.lease import Leadership
from meshwright.cluster.resources import TRAININGJOBS
from meshwright.gang_queue import GangQueue
from meshwright.jobs import Jobs
from meshwright.kueue import read_levels
from meshwright.lifecycle.phases import TERMINAL
from meshwright.lookups import Lookups
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.topology.tree import Topology
from meshwright.progress import ProgressBoard
from meshwright.reconcile import Recorder, Surroundings, reconcile
from meshwright.restoring import restore_reservation
from meshwright.settings import Settings
from meshwright.workqueue import WorkQueue

logger = logging.getLogger(__name__)

FIRST_RETRY_SECONDS: Final = 0.2
LONGEST_RETRY_SECONDS: Final = 30.0
REST_SECONDS: Final = 0.05
"""So long a job is left alone after a pass, and what its pods do meanwhile is gathered."""
REST_FACTOR: Final = 4.0
"""Deciding takes one job at most one fifth of the time, however large its gang: each pod that starts wakes it."""
LOOK_SECONDS: Final = 0.02
"""So long changes of what is free are gathered before the queue is looked through."""
LOOK_PAUSE: Final = 9.0
"""Looking through the queue takes at most one tenth of the time, however much changes."""


class Reconciler:
    """Runs passes while this process leads; listens always.

    Attributes:
        board: What agents say of their jobs; whoever hears them writes it here.
    """

    def __init__(
        self,
        api: ApiServer,
        pods: PodCache,
        nodes: NodeCache,
        leadership: Leadership,
        settings: Settings,
        recorder: Recorder,
    ) -> None:
        self._leadership = leadership
        self._jobs = Jobs()
        self._work = WorkQueue()
        self._next_look: asyncio.TimerHandle | None = None
        self._look_cost = 0.0
        self._solver = TopologySolver(settings.levels or Topology())
        queue = GangQueue(pods, nodes, self._solver, timedelta(seconds=settings.passing_seconds))
        self.board = ProgressBoard()
        self.board.on_report = self._reported
        self._world = Surroundings(api, self._jobs, pods, nodes, queue, Lookups(api), settings, recorder, self.board)
        queue.on_room = self._look_for_room
        pods.on_job = self._wake
        nodes.on_node = self._node_changed

    def notice(self, event_type: str | None, body: Mapping[str, Any]) -> None:
        """A TrainingJob was listed, made, changed or deleted. Only says which job to look at again."""
        uid = str((body.get("metadata") or {}).get("uid") or "")
        if event_type == "DELETED":
            self._gone(uid)
        elif self._jobs.put(body):
            self._wake(uid)

    def oldest_unreconciled_seconds(self) -> float:
        """For how long the job that has waited longest for its pass has waited; 0 while others lead."""
        return self._work.oldest_seconds() if self._leadership.held.is_set() else 0.0

    def __len__(self) -> int:
        return len(self._work)

    @property
    def jobs(self) -> Jobs:
        """Every job as it was last read."""
        return self._jobs

    def waiting(self) -> int:
        """Gangs that wait for room."""
        return len(self._world.queue.waiting())

    def count(self) -> Mapping[tuple[str, str], int]:
        """How many jobs there are, by namespace and phase."""
        return self._jobs.count()

    async def run(self) -> None:
        """Works whenever this process leads, until cancelled."""
        await self._world.pods.wait_synced()
        await self._world.nodes.wait_synced()
        while True:
            await self._leadership.held.wait()
            term = asyncio.ensure_future(self._lead())
            lost = asyncio.ensure_future(self._leadership.lost.wait())
            try:
                await asyncio.wait((term, lost), return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in (term, lost):
                    task.cancel()
                await asyncio.gather(term, lost, return_exceptions=True)
                self._jobs.forget_memories()
                self.board.clear()
                self._world.queue.clear()
                self._world.promises.clear()

    async def _lead(self) -> None:
        """One term: rebuild the reservations, then work."""
        await self._until_it_works(self._read_topology)
        await self._until_it_works(self._restore)
        settings = self._world.settings
        async with asyncio.TaskGroup() as group:
            for _ in range(settings.workers):
                group.create_task(self._work.work(self._pass))
            group.create_task(self._resync())

    async def _restore(self) -> None:
        """Reads every job afresh, and every committed plan; nobody is admitted before the last of them."""
        await self._list_jobs(query={})
        slots = asyncio.Semaphore(16)

        async def one(uid: str) -> None:
            async with slots:
                known = self._jobs.get(uid)
                if known is not None:
                    await restore_reservation(self._world, known)

        await asyncio.gather(*(one(uid) for uid in self._jobs.uids()))
        for uid in self._jobs.uids():
            self._wake(uid)

    async def _read_topology(self) -> None:
        """The levels that Kueue has, where they are kept there; they may come, and change, later."""
        settings = self._world.settings
        if settings.levels is not None:
            return
        found = await read_levels(self._world.api, settings.kueue_topology, settings.topology_bandwidth)
        if found.problem and found.problem != self._solver.problem:
            logger.error("gangs are placed without a topology: %s", found.problem)
        if (found.topology, found.problem) != (self._solver.topology, self._solver.problem):
            self._solver.topology, self._solver.problem = found.topology, found.problem
            self._world.queue.reconsider()

    async def _resync(self) -> None:
        """Now and then looks at every job again, and finds those whose deletion nobody told of."""
        while True:
            await asyncio.sleep(self._world.settings.resync_seconds)
            await self._until_it_works(self._read_topology)
            await self._until_it_works(lambda: self._list_jobs(query={"resourceVersion": "0"}))
            for uid in self._jobs.uids():
                known = self._jobs.get(uid)
                status = (known.raw.get("status") or {}) if known else {}
                if not isinstance(status, Mapping) or status.get("phase") not in TERMINAL:
                    self._wake(uid)

    async def _list_jobs(self, query: Mapping[str, str]) -> None:
        """Compares what is known with what there is."""
        before = set(self._jobs.uids())
        namespaces = self._world.settings.namespaces or (None,)
        found = set()
        for namespace in namespaces:
            listing = await self._world.api.list(TRAININGJOBS, namespace, query=query)
            for item in listing.items:
                found.add(str(item["metadata"]["uid"]))
                self.notice(None, item)
        for uid in before - found:
            self._gone(uid)

    async def _until_it_works(self, call: Callable[[], Awaitable[None]]) -> None:
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                await call()
                return
            except ApiError as error:
                logger.warning("%s; again in %.1f s", error, delay)
            await asyncio.sleep(delay)
            delay = min(2 * delay, LONGEST_RETRY_SECONDS)

    async def _pass(self, uid: str) -> float:
        """One pass; whatever goes wrong, the job is looked at again. Returns for how long it is then left alone."""
        known = self._jobs.get(uid)
        if known is None:
            return 0.0
        where = {"job": f"{known.metadata.namespace}/{known.metadata.name}"}
        began = time.monotonic()
        try:
            wait = await reconcile(self._world, uid)
        except NotLeading:
            self._world.recorder.passed("not_leading", time.monotonic() - began)
            return 0.0
        except Exception as error:
            self._world.recorder.passed("error", time.monotonic() - began, type(error).__name__)
            known.memory.failures += 1
            delay = min(FIRST_RETRY_SECONDS * 2 ** min(known.memory.failures, 10), LONGEST_RETRY_SECONDS)
            if isinstance(error, ApiError):
                logger.warning("pass failed, again in %.1f s: %s", delay, error, extra=where)
            else:
                logger.exception("pass failed, again in %.1f s", delay, extra=where)
            self._work.add_after(uid, delay)
            return REST_SECONDS
        self._world.recorder.passed("done", time.monotonic() - began)
        known.memory.failures = 0
        if wait is not None:
            self._work.add_after(uid, wait)
        return max(REST_SECONDS, REST_FACTOR * known.memory.deciding_seconds)

    def _wake(self, uid: str) -> None:
        if self._jobs.get(uid) is not None:
            self._work.add(uid)

    def _reported(self, uid: str) -> None:
        """An agent said something new; it is looked at when it is time to write it."""
        known = self._jobs.get(uid)
        if known is None:
            return
        settings, written = self._world.settings, known.memory.progress_at
        since = (self._world.clock() - written).total_seconds() if written else 0.0
        self._work.add_after(uid, max(0.0, settings.progress_seconds - since))

    def _look_for_room(self) -> None:
        """Something was given back: the queue is looked through at once, unless that was done just now."""
        if self._next_look is None:
            loop = asyncio.get_running_loop()
            self._next_look = loop.call_later(max(LOOK_SECONDS, self._look_cost * LOOK_PAUSE), self._wake_turns)

    def _wake_turns(self) -> None:
        """Wakes those whose turn it is; the others would only hear what they know."""
        self._next_look, began = None, time.monotonic()
        try:
            for uid in self._world.queue.turns(self._world.clock()):
                self._wake(uid)
        except Exception:
            logger.exception("looking through the queue failed")
        self._look_cost = time.monotonic() - began

    def _node_changed(self, name: str) -> None:
        """A node became or stopped being ready: its jobs look now, and again once it may be called lost."""
        for uid in self._world.pods.jobs_on(name):
            self._wake(uid)
            self._work.add_after(uid, self._world.settings.node_lost_seconds + 0.1)

    def _gone(self, uid: str) -> None:
        self._jobs.drop(uid)
        self.board.forget(uid)
        self._world.pods.forget(uid)
        self._work.forget(uid)
        self._world.queue.leave(uid)
        self._world.queue.release(uid)
        self._world.promises.kept(uid)
