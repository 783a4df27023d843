"""The judge's own eyes: one watch on jobs and pods with the administrator's rights, and the API server's audit log."""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.chaos.admin import CORE, JOBS, Admin, Json
from tests.chaos.facts import LABEL_JOB_UID, AuditEvent, JobState


class TooLate(Exception):
    """Something that was waited for did not come in time."""


@dataclass
class Scene:
    """What is seen of one namespace.

    Attributes:
        jobs: The jobs there are now, by name.
        pods: The pods of jobs there are now, by name.
        states: Every state of every job, in order.
        audit: The namespace's part of the audit log.
    """

    jobs: dict[str, Json] = field(default_factory=dict)
    pods: dict[str, Json] = field(default_factory=dict)
    states: list[JobState] = field(default_factory=list)
    audit: list[AuditEvent] = field(default_factory=list)
    _news: asyncio.Event = field(default_factory=asyncio.Event)

    def tell(self) -> None:
        """Wakes who waits."""
        self._news.set()
        self._news = asyncio.Event()

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Waits until the condition holds.

        Raises:
            TooLate: It did not within those seconds.
        """
        deadline = time.monotonic() + seconds
        while not condition():
            left = deadline - time.monotonic()
            if left <= 0:
                raise TooLate(f"not in {seconds:.0f} s: {what}")
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._news.wait()

    def clear(self) -> None:
        """Forgets what is over, for the next run in this namespace."""
        self.states.clear()
        self.audit.clear()


class Observer:
    """Watches everything, and files it by namespace."""

    def __init__(self, admin: Admin, audit_log: Path) -> None:
        self.scenes: dict[str, Scene] = defaultdict(Scene)
        self.not_ready: dict[str, float] = {}
        self._admin, self._audit_log = admin, audit_log
        self._offset, self._rest = 0, b""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        follow = (self._follow_jobs(), self._follow_pods(), self._follow_audit())
        self._tasks = [asyncio.ensure_future(one) for one in follow]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def _follow_jobs(self) -> None:
        async for kind, item in self._admin.follow(f"{JOBS}/trainingjobs"):
            if kind == "LISTED":
                for job in item["items"]:
                    self._job(job)
                self._forget({j["metadata"]["uid"] for j in item["items"]}, "jobs")
            elif kind == "DELETED":
                scene = self.scenes[item["metadata"]["namespace"]]
                known = scene.jobs.get(item["metadata"]["name"])
                if known and known["metadata"]["uid"] == item["metadata"]["uid"]:
                    del scene.jobs[item["metadata"]["name"]]
                scene.tell()
            else:
                self._job(item)

    def _job(self, item: Json) -> None:
        meta = item["metadata"]
        scene = self.scenes[meta["namespace"]]
        version = int(meta["resourceVersion"])
        known = scene.jobs.get(meta["name"])
        if known and int(known["metadata"]["resourceVersion"]) >= version:
            return
        scene.jobs[meta["name"]] = item
        status = item.get("status") or {}
        scene.states.append(JobState(meta["uid"], meta["name"], version, status, time.monotonic()))
        scene.tell()

    async def _follow_pods(self) -> None:
        async for kind, item in self._admin.follow(f"{CORE}/pods?labelSelector={LABEL_JOB_UID}"):
            if kind == "LISTED":
                for pod in item["items"]:
                    self._pod(pod)
                self._forget({p["metadata"]["uid"] for p in item["items"]}, "pods")
            elif kind == "DELETED":
                scene = self.scenes[item["metadata"]["namespace"]]
                scene.pods.pop(item["metadata"]["name"], None)
                scene.tell()
            else:
                self._pod(item)

    def _pod(self, item: Json) -> None:
        scene = self.scenes[item["metadata"]["namespace"]]
        scene.pods[item["metadata"]["name"]] = item
        scene.tell()

    def _forget(self, there: set[str], what: str) -> None:
        """After a list: what is not in it is gone."""
        for scene in self.scenes.values():
            known: dict[str, Json] = getattr(scene, what)
            for name in [n for n, item in known.items() if item["metadata"]["uid"] not in there]:
                del known[name]
            scene.tell()

    async def _follow_audit(self) -> None:
        while True:
            self.read_audit()
            await asyncio.sleep(0.5)

    def read_audit(self) -> None:
        """Reads what the log holds by now; a call is in it before its answer leaves the server."""
        with self._audit_log.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        self._offset += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if _worth_parsing(line) and (event := AuditEvent.parse(line)):
                self.scenes[event.namespace].audit.append(event)


def _worth_parsing(line: bytes) -> bool:
    """Most of the log is about nodes and events."""
    if b'"resource":"trainingjobs"' in line:
        return True
    return b'"resource":"pods"' in line and (b'"verb":"create"' in line or b'"verb":"delete"' in line)
