"""One job's life on fake nodes: what is done to it, what that must cost, and what is waited for."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from tests.chaos.admin import CORE, JOBS, Admin, Json
from tests.chaos.facts import LABEL_INCARNATION, LABEL_INDEX, LABEL_JOB_UID, TERMINAL, Ledger
from tests.chaos.observer import Scene, TooLate

CONVERGES_SECONDS: Final = 60.0
"""Within this everything that is waited for has to come, kills and faults or not, if the machine is not overloaded."""


def converges_seconds() -> float:
    """The same, stretched in proportion where more than two processes per core wait to run."""
    return CONVERGES_SECONDS * max(1.0, os.getloadavg()[0] / (2 * (os.cpu_count() or 1)))


LIFE_LABEL: Final = "chaos.meshwright.dev/slot"
_EXIT: Final = "fake.devcluster/exit"
_LOST: Final = "fake.devcluster/lost"
_STRATEGIC: Final = "application/strategic-merge-patch+json"


@dataclass(frozen=True, slots=True)
class Shape:
    """What kind of job it is.

    Attributes:
        replicas: Pods in the gang.
        max_restarts: Its budget of charged restarts.
        max_disruptions: Its budget of free ones.
        evidence_seconds: How long an incident waits for evidence.
        start_seconds: How long a pod takes to run.
        term_seconds: How long it takes to stop.
        rules: Its failure policy's rules.
    """

    replicas: int = 3
    max_restarts: int = 10
    max_disruptions: int = 100
    evidence_seconds: int = 1
    start_seconds: float = 0.0
    term_seconds: float = 0.0
    rules: tuple[Mapping[str, Any], ...] = ()

    def manifest(self, name: str, slot: str) -> Json:
        """The TrainingJob."""
        annotations = {
            "fake.devcluster/start-seconds": str(self.start_seconds),
            "fake.devcluster/term-seconds": str(self.term_seconds),
        }
        pod = {
            "nodeSelector": {LIFE_LABEL: slot},
            "terminationGracePeriodSeconds": 2,
            "containers": [{"name": "trainer", "image": "example.org/none:1", "command": ["train"]}],
        }
        policy = {
            "maxRestarts": self.max_restarts,
            "maxDisruptions": self.max_disruptions,
            "evidenceSeconds": self.evidence_seconds,
            "rules": [dict(rule) for rule in self.rules],
        }
        template = {"metadata": {"annotations": annotations}, "spec": pod}
        return {
            "apiVersion": "meshwright.dev/v1alpha1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {
                "failurePolicy": policy,
                "roles": [{"name": "worker", "replicas": self.replicas, "template": template}],
            },
        }


@dataclass
class Life:
    """Drives one job by name in one namespace; every wait ends by itself.

    Attributes:
        ledgers: What was done to each job of that name, by UID.
        patience: How long a wait that begins now may last.
        on_step: Told before each thing that is done to the job.
        held: Whether the operator stands in the middle of what it was about to do.
    """

    admin: Admin
    scene: Scene
    namespace: str
    slot: str
    shape: Shape = Shape()
    name: str = "life"
    ledgers: dict[str, Ledger] = field(default_factory=dict)
    uid: str = ""
    patience: Callable[[], float] = converges_seconds
    on_step: Callable[[str], None] = lambda _: None
    held: Callable[[], bool] = lambda: False

    @property
    def ledger(self) -> Ledger:
        """Of the job that there is now."""
        return self.ledgers[self.uid]

    @property
    def status(self) -> Mapping[str, Any]:
        """The job's status, as the judge's watch has it."""
        job = self.scene.jobs.get(self.name)
        if job is None or job["metadata"]["uid"] != self.uid:
            return {}
        return job.get("status") or {}

    async def create(self) -> None:
        """Applies the job."""
        self.on_step("create")
        path = f"{JOBS}/namespaces/{self.namespace}/trainingjobs"
        job = await self.admin.create(path, self.shape.manifest(self.name, self.slot))
        self.uid = job["metadata"]["uid"]
        self.ledgers[self.uid] = Ledger(self.shape.max_restarts, self.shape.max_disruptions)

    async def settled(self) -> None:
        """Waits until it runs again after everything that was done to it, or has failed as it should."""
        await self.scene.until(self._is_settled, self.patience(), self._what("settled"))

    async def settled_or_held(self) -> None:
        """Waits until it runs, or until the operator is held on the way there."""
        await self.scene.until(
            lambda: self.held() or self._is_settled(), self.patience(), self._what("held or settled")
        )

    def over(self) -> bool:
        """Whether it has ended."""
        return self.status.get("phase") in TERMINAL

    def _is_settled(self) -> bool:
        status = self.status
        if self.over():
            return True
        if status.get("phase") != "Running" or status.get("incident"):
            return False
        if int(status.get("restarts") or 0) < len(self.ledger.entries):
            return False
        return len(self.gang()) == self.shape.replicas and all(map(_runs, self.gang()))

    def gang(self) -> list[Json]:
        """The pods of its current incarnation, by index."""
        number = str(self.status.get("incarnation") or 0)
        pods = [
            pod
            for pod in self.scene.pods.values()
            if pod["metadata"]["labels"].get(LABEL_JOB_UID) == self.uid
            and pod["metadata"]["labels"].get(LABEL_INCARNATION) == number
        ]
        return sorted(pods, key=lambda pod: int(pod["metadata"]["labels"][LABEL_INDEX]))

    async def exit(self, ending: str, *, charged: bool, everyone: bool = False, index: int = -1) -> None:
        """One pod ends (or all of them do), with `CODE` or `CODE:REASON`."""
        self.on_step(f"exit {ending} of {'all' if everyone else 'one'}")
        self.ledger.add(f"exit {ending} of {'all' if everyone else index}", charged=charged)
        gang = self.gang()
        chosen = gang if everyone else [gang[index]]
        await asyncio.gather(*(self._end_pod(pod, ending) for pod in chosen))

    async def delete_pod(self, index: int, grace: int | None = None) -> None:
        """Somebody deletes a pod, as `kubectl delete pod` does; with grace 0, as `--force` does."""
        self.on_step("delete pod")
        self.ledger.add(f"deletion of pod {index}", charged=False)
        pod = self.gang()[index]["metadata"]
        options = {"gracePeriodSeconds": grace} if grace is not None else None
        await self.admin.delete(f"{CORE}/namespaces/{self.namespace}/pods/{pod['name']}", options)

    async def lose_node(self, index: int) -> str:
        """The node of one of its pods goes silent; returns its name, for `return_node`."""
        self.on_step("lose node")
        name = str(self.gang()[index]["spec"]["nodeName"])
        self.ledger.node_lost(f"loss of node {name}")
        await self.admin.annotate(f"{CORE}/nodes/{name}", {_LOST: "true"})
        await self._say_unknown(name)
        return name

    async def return_node(self, name: str) -> None:
        """The node is back."""
        await self.admin.annotate(f"{CORE}/nodes/{name}", {_LOST: None})

    async def suspend(self) -> None:
        """Suspends it and waits until no pod remains and it says so."""
        self.on_step("suspend")
        self.ledger.detours += 1
        await self._set_suspend(True)
        await self.suspended()

    async def suspended(self) -> None:
        """Waits until no pod of it remains and it says so."""
        await self.scene.until(
            lambda: self.over() or (self.status.get("phase") == "Suspended" and not self._pods()),
            self.patience(),
            self._what("suspended"),
        )
        # The watch may not show yet what a late call has just made; a list does.
        deadline = time.monotonic() + self.patience()
        while alive := [pod["metadata"]["name"] for pod in await self._listed("pods") if not _ended(pod)]:
            if time.monotonic() > deadline:
                raise TooLate(self._what(f"without pods while suspended, but there are {alive}"))
            await asyncio.sleep(0.1)

    async def resume(self) -> None:
        """Lets it run again."""
        self.on_step("resume")
        await self._set_suspend(False)

    async def succeed(self) -> None:
        """All its pods end with 0; waits until it has succeeded."""
        self.on_step("succeed")
        self.ledger.succeeds = True
        await asyncio.gather(*(self._end_pod(pod, "0") for pod in self.gang()))
        await self.scene.until(self.over, self.patience(), self._what("succeeded"))

    async def delete(self) -> None:
        """Deletes the job; does not wait."""
        await self.admin.delete(f"{JOBS}/namespaces/{self.namespace}/trainingjobs/{self.name}")

    async def gone(self) -> None:
        """Waits until neither the job nor any pod of it is there."""
        there = self.scene.jobs
        await self.scene.until(
            lambda: not self._pods() and (self.name not in there or there[self.name]["metadata"]["uid"] != self.uid),
            self.patience(),
            self._what("gone"),
        )

    async def leftovers(self) -> list[str]:
        """Everything of ours that is still in the namespace, given time for the garbage collector."""
        deadline = time.monotonic() + self.patience()
        while True:
            found = [
                f"{kind} {item['metadata']['name']}"
                for kind in ("pods", "services", "configmaps")
                for item in await self._listed(kind)
            ]
            if not found or time.monotonic() > deadline:
                return found
            await asyncio.sleep(0.2)

    async def _listed(self, kind: str) -> list[Json]:
        path = f"{CORE}/namespaces/{self.namespace}/{kind}?labelSelector={LABEL_JOB_UID}"
        return await self.admin.items(path)

    def _pods(self) -> list[str]:
        return [
            name
            for name, pod in self.scene.pods.items()
            if pod["metadata"]["labels"].get(LABEL_JOB_UID) == self.uid and not _ended(pod)
        ]

    async def _end_pod(self, pod: Json, ending: str) -> None:
        path = f"{CORE}/namespaces/{self.namespace}/pods/{pod['metadata']['name']}"
        await self.admin.annotate(path, {_EXIT: ending})

    async def _set_suspend(self, value: bool) -> None:
        await self.admin.patch(
            f"{JOBS}/namespaces/{self.namespace}/trainingjobs/{self.name}", {"spec": {"suspend": value}}
        )

    async def _say_unknown(self, node: str) -> None:
        """What the node controller says of it after its grace period, said at once."""
        condition = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "a fault",
            "lastTransitionTime": _now(),
        }
        await self.admin.call(
            "PATCH", f"{CORE}/nodes/{node}/status", {"status": {"conditions": [condition]}}, _STRATEGIC
        )

    def _what(self, wanted: str) -> str:
        done = ", ".join(due.what for due in self.ledger.entries) or "nothing"
        return f"{self.namespace}/{self.name} {wanted}, after {done}"


def _runs(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
