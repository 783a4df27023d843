"""Looks at the job through the API server, as any client could: its status, its pods, the log of rank 0."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from demo import script_log
from demo.script_log import Line
from devcluster.access import request
from devcluster.cluster import Cluster
from devcluster.errors import ApiError
from meshwright_api import names
from meshwright_api.job import parse_status
from meshwright_api.status import TrainingJobStatus

PODS = "/api/v1/namespaces/default/pods"
JOBS = f"/apis/{names.API_VERSION}/namespaces/default/{names.PLURAL}"
PROCESS = "process://"
"""How process nodes write a container's ID: the number after it is the process's."""


@dataclass(frozen=True)
class Worker:
    """A pod of the gang. `pid` is its process on this machine, while it runs."""

    name: str
    uid: str
    node: str
    index: int
    incarnation: int
    pid: int | None


@dataclass(frozen=True)
class View:
    """The job at one moment, and what rank 0 has said since the last look."""

    status: TrainingJobStatus
    workers: tuple[Worker, ...]
    lines: tuple[Line, ...]


class Watcher:
    """Remembers how much of each log it has read."""

    def __init__(self, cluster: Cluster, job: str) -> None:
        self._cluster, self._job = cluster, job
        self._read: dict[str, int] = {}

    def look(self) -> View:
        """One look."""
        status = parse_status(self._cluster.request("GET", f"{JOBS}/{self._job}"))
        listed = self._cluster.request("GET", f"{PODS}?labelSelector={names.LABEL_JOB}={self._job}")["items"]
        workers = tuple(sorted(map(worker, listed), key=lambda one: (one.incarnation, one.index)))
        lines = [line for one in workers if one.index == 0 for line in self._news(one)]
        return View(status, workers, tuple(lines))

    def _news(self, pod: Worker) -> list[Line]:
        url = f"{self._cluster.server}{PODS}/{pod.name}/log"
        try:
            log = request(url, self._cluster.ca, self._cluster.token()).decode(errors="replace")
        except ApiError:  # it has not started yet, or is gone
            return []
        whole = log[: log.rfind("\n") + 1]
        news = whole[self._read.get(pod.uid, 0) :]
        self._read[pod.uid] = len(whole)
        return script_log.parse(news)


def worker(pod: dict[str, Any]) -> Worker:
    """Reads a pod."""
    metadata = pod["metadata"]
    container: dict[str, Any] = next(iter(pod["status"].get("containerStatuses") or []), {})
    runs = "running" in (container.get("state") or {})
    identity = container.get("containerID") or ""
    return Worker(
        name=metadata["name"],
        uid=metadata["uid"],
        node=pod["spec"].get("nodeName") or "",
        index=int(metadata["labels"][names.LABEL_INDEX]),
        incarnation=int(metadata["labels"][names.LABEL_INCARNATION]),
        pid=int(identity.removeprefix(PROCESS)) if runs and identity.startswith(PROCESS) else None,
    )
