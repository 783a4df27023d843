"""Gives every pod of our nodes a worker, and tells the workers what the API server says."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping

from devcluster.node.api import Object
from devcluster.node.lifecycle import PodWorker
from devcluster.node.model import Pod, parse_pod

_log = logging.getLogger(__name__)


class PodTable:
    """All pods of the cluster that are bound, and the workers of those on our nodes.

    What happens to a pod while its node is off line is held back until the node returns: then the worker gets the
    newest version, or learns that the pod is gone.
    """

    def __init__(
        self,
        nodes: Mapping[str, asyncio.Event],
        make_worker: Callable[[Pod], PodWorker],
        changed: Callable[[], None],
    ) -> None:
        self._nodes, self._make_worker, self._changed = nodes, make_worker, changed
        self._pods: dict[str, Pod] = {}
        self._workers: dict[str, PodWorker] = {}
        self._by_node: dict[str, dict[str, PodWorker]] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, dict[str, Pod | None]] = {}

    @property
    def pods(self) -> Iterator[Pod]:
        """Every bound pod of the cluster."""
        return iter(self._pods.values())

    @property
    def workers(self) -> list[PodWorker]:
        """The workers of the pods of our nodes."""
        return list(self._workers.values())

    def find(self, namespace: str, name: str) -> PodWorker | None:
        """The newest pod of that name on our nodes."""
        found = [one for one in self._workers.values() if (one.pod.namespace, one.pod.name) == (namespace, name)]
        return found[-1] if found else None

    def occupants(self, pod: Pod) -> list[Pod]:
        """The other pods that take room on the pod's node."""
        workers = self._by_node.get(pod.node, {})
        return [one.pod for uid, one in workers.items() if uid != pod.uid and not one.over]

    def see(self, document: Object) -> None:
        """A pod as it is now."""
        pod = parse_pod(document)
        self._pods[pod.uid] = pod
        self._tell(pod, pod)
        self._changed()

    def lose(self, document: Object) -> None:
        """The last version of a pod that is gone."""
        pod = parse_pod(document)
        self._pods.pop(pod.uid, None)
        self._tell(pod, None)
        self._changed()

    def node_returned(self, node: str) -> None:
        """Delivers what was held back for a node."""
        for uid, pod in self._held.pop(node, {}).items():
            self._deliver(uid, pod)

    async def close(self) -> None:
        """Ends all workers where they are."""
        for life in self._lives.values():
            life.cancel()
        await asyncio.gather(*self._lives.values(), return_exceptions=True)

    def _tell(self, pod: Pod, news: Pod | None) -> None:
        on_line = self._nodes.get(pod.node)
        if on_line is None:
            return
        if on_line.is_set():
            self._deliver(pod.uid, news)
        else:
            self._held.setdefault(pod.node, {})[pod.uid] = news

    def _deliver(self, uid: str, pod: Pod | None) -> None:
        worker = self._workers.get(uid)
        if pod is None:
            if worker:
                worker.vanish()
        elif worker:
            worker.update(pod)
        else:
            worker = self._workers[uid] = self._make_worker(pod)
            self._by_node.setdefault(pod.node, {})[uid] = worker
            worker.update(pod)
            self._lives[uid] = asyncio.create_task(self._live(uid, worker))

    async def _live(self, uid: str, worker: PodWorker) -> None:
        try:
            await worker.run()
        except Exception:
            _log.exception("pod %s/%s: its worker failed", worker.pod.namespace, worker.pod.name)
        finally:
            self._workers.pop(uid, None)
            self._by_node[worker.pod.node].pop(uid, None)
            self._lives.pop(uid, None)
