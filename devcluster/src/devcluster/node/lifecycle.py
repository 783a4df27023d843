"""The life of one pod on its node, from binding to removal: what a kubelet's pod worker does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from devcluster.node import clock
from devcluster.node.errors import ContainerNotStarted, NotYet
from devcluster.node.events import Recorder
from devcluster.node.fields import Site
from devcluster.node.model import Container, Pod
from devcluster.node.reporter import Reporter
from devcluster.node.runtime import PodRuntime, RunningContainer
from devcluster.node.status import (
    CREATING,
    EPOCH,
    FINAL_PHASES,
    INITIALIZING,
    START_ERROR,
    STATUS_UNKNOWN,
    ContainerState,
    PodState,
    Running,
    Terminated,
    Verdict,
    Waiting,
    phase,
)

_RETRY_SECONDS: Final = (0.2, 0.5, 1.0, 2.0)
_KILLED: Final = 137
Admit = Callable[[Pod], Verdict | None]
_TOO_LONG: Final = Verdict("DeadlineExceeded", "Pod was active on the node longer than the specified deadline")
_log = logging.getLogger(__name__)


class PodWorker:
    """Carries one pod through its life. `update` and `vanish` tell it what the API server says.

    Attributes:
        pod: Its newest version.
        over: Nothing of it runs, or ever will.
    """

    def __init__(self, pod: Pod, runtime: PodRuntime, admit: Admit, reporter: Reporter, recorder: Recorder) -> None:
        self.pod = pod
        self.runtime = runtime
        self.over = pod.finished
        self._admit = admit
        self._reporter, self._recorder = reporter, recorder
        self._state = PodState()
        self._running: dict[str, RunningContainer] = {}
        self._asked_to_go = asyncio.Event()
        self._end = asyncio.Event()
        self._gone = asyncio.Event()
        self._overruled = False

    @property
    def state(self) -> PodState:
        """What is known of it now."""
        return self._state

    def update(self, pod: Pod) -> None:
        """Takes a newer version of the pod."""
        self.pod = pod
        self.runtime.changed(pod)
        if pod.deletion_grace is not None:
            self._asked_to_go.set()
            self._end.set()
        if pod.finished and not self.over and phase(pod, self._state) not in FINAL_PHASES:
            self._overruled = True  # somebody else has made its phase final: it ends, and we say no more
            self._end.set()

    def vanish(self) -> None:
        """The pod is not in the API any more."""
        self._gone.set()
        self._asked_to_go.set()
        self._end.set()

    async def run(self) -> None:
        """The whole life; returns when nothing of the pod is left."""
        if not self.pod.finished:
            await self._live()
        self.over = True
        await self._asked_to_go.wait()
        if not self._gone.is_set():
            await self._reporter.delete()
        await self._gone.wait()
        self._reporter.close()
        await self.runtime.remove()

    async def shut_down(self, grace: float) -> None:
        """The node goes down: ends the pod within `grace` seconds and says so."""
        if not self._running:
            return
        why = Verdict("Terminated", "Pod was terminated in response to imminent node shutdown.")
        self._change(verdict=why, tell=False)
        await self._end_containers(grace)
        self._change(over=True)
        await self._reporter.flushed()

    async def _live(self) -> None:
        verdict = None if self._was_started() else self.runtime.refusal() or self._admit(self.pod)
        if verdict:
            self._recorder.warn(self.pod, verdict.reason, verdict.message)
            self._reporter.reject(self.pod, verdict)
            return
        work = asyncio.create_task(self._work())
        end = asyncio.create_task(self._end.wait())
        try:
            await asyncio.wait({work, end}, timeout=self._seconds_left(), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
                return
            work.cancel()
            await asyncio.wait({work})
            await self._stop(None if end.done() else _TOO_LONG)
        finally:
            work.cancel()
            end.cancel()

    async def _work(self) -> None:
        self._begin()
        if self._was_started():
            self._resume()
        else:
            await self._start()
        while self._running:
            await asyncio.wait([one.ended for one in self._running.values()], return_when=asyncio.FIRST_COMPLETED)
        self._change(sandbox=False)

    def _begin(self) -> None:
        reason = INITIALIZING if self.pod.init_containers else CREATING
        states: dict[str, ContainerState] = {one.name: Waiting(reason) for one in self._all()}
        self._change(states=states, start_time=self.pod.start_time or clock.now())

    async def _start(self) -> None:
        site = await self._prepared()
        self._change(sandbox=True, pod_ip=site.pod_ip, host_ip=site.host_ip)
        for container in self.pod.init_containers:
            await self._started(container)
            if container.name in self._running:
                await asyncio.wait([self._running[container.name].ended])
            final = self._state.states[container.name]
            if isinstance(final, Terminated) and final.exit_code:
                return
        for container in self.pod.containers:
            self._set(container.name, Waiting(CREATING), tell=False)
        for container in self.pod.containers:
            await self._started(container)

    async def _prepared(self) -> Site:
        attempt = 0
        while True:
            try:
                return await self.runtime.prepare()
            except NotYet as problem:
                await self._wait_for(problem, None, attempt)
                attempt += 1

    async def _started(self, container: Container) -> None:
        attempt = 0
        while True:
            try:
                self._follow(container.name, await self.runtime.start(container))
                return
            except NotYet as problem:
                await self._wait_for(problem, container, attempt)
                attempt += 1
            except ContainerNotStarted as problem:
                self._recorder.warn(self.pod, "Failed", f"Error: {problem}")
                final = Terminated(128, START_ERROR, str(problem), EPOCH, clock.now())
                self._set(container.name, final)
                return

    async def _wait_for(self, problem: NotYet, container: Container | None, attempt: int) -> None:
        if attempt == 0:
            self._recorder.warn(self.pod, problem.event, str(problem))
        if container:
            self._set(container.name, Waiting(problem.waiting, str(problem)))
        await asyncio.sleep(_RETRY_SECONDS[min(attempt, len(_RETRY_SECONDS) - 1)])

    def _was_started(self) -> bool:
        """Whether an earlier node program has run containers of this pod."""
        return any(one and "waiting" not in one for one in self.pod.seen.values())

    def _resume(self) -> None:
        lost: dict[str, ContainerState] = {one.name: self._lost(one) for one in self._all()}
        adopted = self.runtime.adopt()
        if not adopted:
            self._change(states=lost, over=True)
            return
        self._change(states=lost, tell=False)
        for name, container in adopted.running.items():
            self._follow(name, container)
        self._change(sandbox=True, pod_ip=adopted.site.pod_ip, host_ip=adopted.site.host_ip)

    def _lost(self, container: Container) -> ContainerState:
        """The state of a container that an earlier program had started."""
        seen = self.pod.seen.get(container.name, {})
        if "terminated" in seen:
            past = seen["terminated"]
            times = past.get("startedAt") or "", past.get("finishedAt") or ""
            return Terminated(past["exitCode"], past.get("reason", ""), past.get("message", ""), *times)
        if "running" in seen:
            message = "The container could not be located when the pod was deleted.  The container used to be Running"
            return Terminated(_KILLED, STATUS_UNKNOWN, message)
        return Terminated(_KILLED, STATUS_UNKNOWN, "The container could not be located when the pod was terminated")

    def _follow(self, name: str, container: RunningContainer) -> None:
        self._running[name] = container
        self._set(name, Running(container.started_at, container.container_id))

        def note(ended: asyncio.Future[Terminated]) -> None:
            self._running.pop(name, None)
            self._set(name, ended.result())

        container.ended.add_done_callback(note)

    async def _stop(self, verdict: Verdict | None) -> None:
        """Ends what runs: SIGTERM, the grace period as it is now, SIGKILL.

        A deletion that shortens the period comes too late for containers that are being stopped already: upstream's
        kubelet does not hear of it either before the first period is over.
        """
        self._change(verdict=verdict, tell=False)
        if self._running:
            self._recorder.note(self.pod, "Killing", f"Stopping container {' '.join(self._running)}")
        await self._end_containers(self._grace())
        states = {one.name: self._never_ran(one) for one in self._all()}
        self._change(states=states, sandbox=False, over=True)

    def _grace(self) -> float:
        """Seconds between SIGTERM and SIGKILL; never less than one, whatever was asked for, as with a kubelet."""
        return max(self.pod.deletion_grace or self.pod.termination_grace, 1)

    async def _end_containers(self, grace: float) -> None:
        ends = [one.ended for one in self._running.values()]
        for container in list(self._running.values()):
            container.terminate() if grace else container.kill()
        if ends and grace:
            await asyncio.wait(ends, timeout=grace)
            for container in list(self._running.values()):
                container.kill()
        if ends:
            await asyncio.wait(ends)

    def _never_ran(self, container: Container) -> ContainerState:
        state = self._state.states.get(container.name, Waiting(CREATING))
        if isinstance(state, Terminated):
            return state
        return Terminated(_KILLED, STATUS_UNKNOWN, "The container could not be located when the pod was terminated")

    def _seconds_left(self) -> float | None:
        if self.pod.active_deadline is None:
            return None
        start = clock.parse(self.pod.start_time) if self.pod.start_time else clock.parse(clock.now())
        return max(0.0, start + self.pod.active_deadline - clock.parse(clock.now()))

    def _all(self) -> tuple[Container, ...]:
        return (*self.pod.init_containers, *self.pod.containers)

    def _set(self, name: str, state: ContainerState, *, tell: bool = True) -> None:
        self._change(states={**self._state.states, name: state}, tell=tell)

    def _change(self, *, tell: bool = True, **changes: object) -> None:
        self._state = replace(self._state, **changes)  # type: ignore[arg-type]
        if tell and not self._overruled:
            self._reporter.report(self.pod, self._state)
