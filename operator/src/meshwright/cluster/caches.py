"""The pods and nodes of the cluster as the operator remembers them, indexed by what it asks for."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import Generic, TypeVar

from meshwright.cluster.api import ApiServer
from meshwright.cluster.projection import NodeRecord, PodRecord, project_node, project_pod
from meshwright.cluster.reflector import Reflector, Timings
from meshwright.cluster.resources import NODES, PODS
from meshwright.cluster.shapes import NodeShape, PodShape
from meshwright.lifecycle.model import Identity, Job, Pod
from meshwright.placement.supply.capacity import PodUse
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright_api import names

logger = logging.getLogger(__name__)

V = TypeVar("V")


class _Cache(Generic[V]):
    """One or several reflectors that feed one index."""

    def __init__(self, reflectors: list[Reflector[V]]) -> None:
        self.reflectors = reflectors

    async def run(self) -> None:
        """Keeps the copy current until cancelled."""
        async with asyncio.TaskGroup() as group:
            for reflector in self.reflectors:
                group.create_task(reflector.run(), name=f"reflector {reflector.name}")
            await asyncio.Event().wait()

    async def wait_synced(self) -> None:
        """Returns once the first list of every collection is in."""
        for reflector in self.reflectors:
            await reflector.synced.wait()

    @property
    def synced(self) -> bool:
        """Whether the first list of every collection is in: before that, absence means nothing."""
        return all(reflector.synced.is_set() for reflector in self.reflectors)

    def age(self) -> float:
        """Seconds since the server's last word about the collection that was silent longest."""
        return max((reflector.age() for reflector in self.reflectors), default=0.0)


class PodCache(_Cache[PodRecord]):
    """All pods, by the gang that they belong to.

    Attributes:
        on_job: Called with a job's UID when one of its pods changed.
        on_use: Called with what a pod held of its node and what it holds now, where that changed.
    """

    def __init__(
        self, api: ApiServer, namespaces: Iterable[str | None] = (None,), timings: Timings | None = None
    ) -> None:
        super().__init__(
            [Reflector(api, PODS, ns, project_pod, self._changed, shape=PodShape, timings=timings) for ns in namespaces]
        )
        self.on_job: Callable[[str], None] = lambda _: None
        self.on_use: Callable[[PodUse | None, PodUse | None], None] = lambda _old, _new: None
        self._gangs: dict[str, dict[str, PodRecord]] = {}
        self._tuples: dict[str, tuple[Pod, ...]] = {}
        self._vanished: dict[str, set[Identity]] = {}

    def gang(self, job_uid: str) -> tuple[Pod, ...]:
        """Every pod that the job controls, of all incarnations."""
        if job_uid not in self._gangs:
            return ()
        if job_uid not in self._tuples:
            records = self._gangs[job_uid].values()
            self._tuples[job_uid] = tuple(record.pod for record in records if record.pod)
        return self._tuples[job_uid]

    def address(self, job_uid: str, identity: Identity) -> str:
        """IP address of one of the job's pods; empty if there is no such pod, or it has none."""
        records = self._gangs.get(job_uid, {}).values()
        return next((r.address for r in records if r.pod is not None and r.pod.identity == identity), "")

    def vanished(self, job_uid: str) -> frozenset[Identity]:
        """Pods of the job's newest incarnation that this process has seen and that are gone."""
        return frozenset(self._vanished.get(job_uid, ()))

    def forget(self, job_uid: str) -> None:
        """The job is gone: its vanished pods are of no interest any more."""
        self._vanished.pop(job_uid, None)

    def owners(self) -> frozenset[str]:
        """UIDs of all jobs that have pods."""
        return frozenset(self._gangs)

    def jobs_on(self, node: str) -> frozenset[str]:
        """UIDs of the jobs with a pod on the node."""
        return frozenset(
            uid for uid, gang in self._gangs.items() if any(r.pod and r.pod.node == node for r in gang.values())
        )

    def usage(self) -> Iterator[PodUse]:
        """What each pod holds of its node."""
        for reflector in self.reflectors:
            yield from (record.use for record in reflector.objects.values() if record.use)

    def _changed(self, old: PodRecord | None, new: PodRecord | None) -> None:
        if old:
            self._remove(old, gone=new is None)
        if new:
            self._add(new)
        before, after = old.use if old else None, new.use if new else None
        if before != after:
            self.on_use(before, after)
        for uid in {record.job_uid for record in (old, new) if record and record.job_uid}:
            self.on_job(uid)

    def _add(self, record: PodRecord) -> None:
        if record.pod:
            self._gangs.setdefault(record.job_uid, {})[record.pod.uid] = record
            self._tuples.pop(record.job_uid, None)
            self._outlive(record.job_uid, record.pod.identity.incarnation)

    def _remove(self, record: PodRecord, *, gone: bool) -> None:
        if record.pod:
            gang = self._gangs[record.job_uid]
            del gang[record.pod.uid]
            self._tuples.pop(record.job_uid, None)
            if not gang:
                del self._gangs[record.job_uid]
            if gone:
                self._remember(record.job_uid, record.pod.identity)

    def _outlive(self, job_uid: str, incarnation: int) -> None:
        """Only the newest incarnation's losses matter, so the memory is bounded by the size of the gang."""
        kept = self._vanished.get(job_uid)
        if kept and next(iter(kept)).incarnation < incarnation:
            del self._vanished[job_uid]

    def _remember(self, job_uid: str, identity: Identity) -> None:
        kept = self._vanished.setdefault(job_uid, set())
        if kept and identity.incarnation < next(iter(kept)).incarnation:
            return
        self._outlive(job_uid, identity.incarnation)
        self._vanished.setdefault(job_uid, set()).add(identity)


class NodeCache(_Cache[NodeRecord]):
    """All nodes.

    Attributes:
        on_offer: Called with a node's name and what it offers when it came, changed that, or went (None).
        on_node: Called with a node's name when it became ready, stopped being so, or went.
        readable: Whether nodes may be read at all; without the right nothing can be placed, and nothing is called lost.
    """

    def __init__(self, api: ApiServer, timings: Timings | None = None, *, readable: bool = True) -> None:
        reflector = Reflector(api, NODES, None, project_node, self._changed, shape=NodeShape, timings=timings)
        super().__init__([reflector] if readable else [])
        self.readable = readable
        self.on_offer: Callable[[str, NodeCapacity | None], None] = lambda _name, _node: None
        self.on_node: Callable[[str], None] = lambda _: None
        self._by_name: dict[str, NodeRecord] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def get(self, name: str) -> NodeRecord | None:
        """The node of this name."""
        return self._by_name.get(name)

    def capacities(self) -> tuple[NodeCapacity, ...]:
        """What every node offers."""
        return tuple(record.capacity for record in self._by_name.values())

    def lost(self, names: Iterable[str], now: datetime, after_seconds: float = 0.0) -> frozenset[str]:
        """Those of `names` that are gone, or not ready for `after_seconds` already; none before the first list."""
        if not self.readable or not self.synced:
            return frozenset()
        return frozenset(name for name in names if name and self._is_lost(name, now, after_seconds))

    def _is_lost(self, name: str, now: datetime, after_seconds: float) -> bool:
        record = self._by_name.get(name)
        if record is None:
            return True
        since = record.not_ready_since
        return since is not None and now - since >= timedelta(seconds=after_seconds)

    def _changed(self, old: NodeRecord | None, new: NodeRecord | None) -> None:
        name = (new or old).name  # type: ignore[union-attr]  # One of them is there.
        if new:
            self._by_name[name] = new
        elif self._by_name.get(name) is old:
            # Otherwise a node of the same name was made again, and the list showed the new one first.
            del self._by_name[name]
        ready = [record is not None and record.capacity.ready for record in (old, new)]
        if ready[0] != ready[1]:
            self.on_node(name)
        now = self._by_name.get(name)
        self.on_offer(name, now.capacity if now else None)


async def live_gang(api: ApiServer, job: Job) -> tuple[Pod, ...]:
    """The job's pods as the API server has them now, not the cache: what is missing here is gone."""
    selector = {"labelSelector": f"{names.LABEL_JOB_UID}={job.uid}"}
    listing = await api.list(PODS, job.namespace, query=selector)
    records = map(project_pod, listing.items)
    return tuple(record.pod for record in records if record.pod and record.job_uid == job.uid)
