"""A pod's life in virtual time, with containers that only pretend."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

import pytest

from devcluster.node.errors import ContainerNotStarted, NotYet
from devcluster.node.events import Recorder
from devcluster.node.fields import Site
from devcluster.node.lifecycle import PodWorker
from devcluster.node.model import Container, Pod, parse_pod
from devcluster.node.reporter import Reporter
from devcluster.node.runtime import Adopted, RunningContainer
from devcluster.node.status import PodState, Running, Terminated, Verdict, Waiting, phase


class _VirtualLoop(asyncio.SelectorEventLoop):
    """Jumps to the next timer instead of waiting for it."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def _run_once(self) -> None:
        loop = cast(Any, self)
        if not loop._ready and loop._scheduled:
            self.now = max(self.now, loop._scheduled[0]._when)
        super()._run_once()  # type: ignore[misc]


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = _VirtualLoop()
    try:
        loop.run_until_complete(story())
        pending = asyncio.all_tasks(loop)
        for task in pending:
            task.cancel()
        if pending:
            loop.run_until_complete(asyncio.wait(pending))
    finally:
        loop.close()


def a_pod(*names: str, init: tuple[str, ...] = (), grace: int | None = None, **more: Any) -> Pod:
    meta: dict[str, Any] = {"uid": "u", "name": "p", "namespace": "ns"}
    if grace is not None:
        meta |= {"deletionTimestamp": "2026-01-01T00:00:00Z", "deletionGracePeriodSeconds": grace}
    containers = [{"name": name} for name in names or ("a",)]
    spec = {"containers": containers, "initContainers": [{"name": name} for name in init], "restartPolicy": "Never"}
    return parse_pod({"metadata": meta, "spec": spec | more.pop("spec", {}), "status": more.pop("status", {})})


class _Fake:
    """A container that obeys SIGTERM after `term` seconds, or never."""

    def __init__(self, term: float | None) -> None:
        self.started_at, self.container_id = "then", "id"
        self.ended: asyncio.Future[Terminated] = asyncio.get_running_loop().create_future()
        self._term = term
        self.ended_at = -1.0

    def end(self, code: int) -> None:
        if not self.ended.done():
            self.ended_at = asyncio.get_running_loop().time()
            self.ended.set_result(Terminated(code, "Error" if code else "Completed"))

    def terminate(self) -> None:
        if self._term is not None:
            asyncio.get_running_loop().call_later(self._term, self.end, 143)

    def kill(self) -> None:
        self.end(137)


class _Runtime:
    """Does what its test says; notes what it was asked for."""

    def __init__(self, term: float | None = 0.0) -> None:
        self.term = term
        self.problems: list[Exception] = []  # raised by the next calls of prepare
        self.start_problems: dict[str, list[Exception]] = {}
        self.refused: Verdict | None = None
        self.adopted: Adopted | None = None
        self.running: dict[str, _Fake] = {}
        self.removed = False

    def refusal(self) -> Verdict | None:
        return self.refused

    async def prepare(self) -> Site:
        if self.problems:
            raise self.problems.pop(0)
        return Site("10.0.0.1", "127.0.0.1", {})

    async def start(self, container: Container) -> RunningContainer:
        if self.start_problems.get(container.name):
            raise self.start_problems[container.name].pop(0)
        self.running[container.name] = _Fake(self.term)
        return self.running[container.name]

    def adopt(self) -> Adopted | None:
        return self.adopted

    def changed(self, pod: Pod) -> None:
        pass

    async def remove(self) -> None:
        self.removed = True


class _Reports:
    """Takes the place of the reporter."""

    def __init__(self) -> None:
        self.states: list[PodState] = []
        self.rejected: Verdict | None = None
        self.deleted = False

    def report(self, pod: Pod, state: PodState) -> None:
        self.states.append(state)

    def reject(self, pod: Pod, verdict: Verdict) -> None:
        self.rejected = verdict

    async def flushed(self) -> None:
        pass

    async def delete(self) -> None:
        self.deleted = True

    def close(self) -> None:
        pass


class _Events:
    def __init__(self) -> None:
        self.said: list[tuple[str, str]] = []

    def note(self, pod: Pod, reason: str, message: str) -> None:
        self.said.append((reason, message))

    warn = note


class Scene:
    """One worker and everything around it."""

    def __init__(self, pod: Pod, runtime: _Runtime | None = None, room: Verdict | None = None) -> None:
        self.runtime, self.reports, self.events = runtime or _Runtime(), _Reports(), _Events()
        reporter, recorder = cast(Reporter, self.reports), cast(Recorder, self.events)
        self.worker = PodWorker(pod, self.runtime, lambda _: room, reporter, recorder)
        self.life = asyncio.create_task(self.worker.run())

    @property
    def last(self) -> PodState:
        return self.reports.states[-1]

    @property
    def phase(self) -> str:
        return phase(self.worker.pod, self.last)

    async def quiet(self) -> None:
        """Lets everything happen that takes no time."""
        for _ in range(30):
            await asyncio.sleep(0)

    async def pass_time(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.quiet()


def test_a_pod_runs_to_its_end_and_is_removed_when_deleted() -> None:
    async def story() -> None:
        scene = Scene(a_pod("a", "b", init=("i",)))
        await scene.quiet()
        assert scene.last.states["a"] == Waiting("PodInitializing")
        assert scene.last.pod_ip == "10.0.0.1"
        scene.runtime.running["i"].end(0)
        await scene.quiet()
        assert scene.phase == "Running"
        scene.runtime.running["a"].end(0)
        await scene.quiet()
        assert scene.phase == "Running"
        scene.runtime.running["b"].end(0)
        await scene.quiet()
        assert (scene.phase, scene.last.sandbox, scene.worker.over) == ("Succeeded", False, True)
        assert not scene.reports.deleted
        scene.worker.vanish()
        await scene.life
        assert scene.runtime.removed

    run(story)


def test_init_containers_stop_at_the_first_failure() -> None:
    async def story() -> None:
        scene = Scene(a_pod("a", init=("i", "j")))
        await scene.quiet()
        scene.runtime.running["i"].end(4)
        await scene.quiet()
        assert scene.phase == "Failed"
        assert set(scene.runtime.running) == {"i"}

    run(story)


def test_what_is_missing_is_tried_again_and_told_once() -> None:
    async def story() -> None:
        runtime = _Runtime()
        runtime.problems = [NotYet("no map")] * 3
        missing = NotYet("no key", waiting="CreateContainerConfigError", event="Failed")
        runtime.start_problems = {"a": [missing, missing]}
        scene = Scene(a_pod("a"), runtime)
        await scene.quiet()
        assert scene.phase == "Pending"
        await scene.pass_time(3)
        assert Waiting("CreateContainerConfigError", "no key") in [one.states["a"] for one in scene.reports.states]
        await scene.pass_time(3)
        assert scene.phase == "Running"
        assert scene.events.said == [("FailedMount", "no map"), ("Failed", "no key")]

    run(story)


def test_a_program_that_cannot_be_executed_fails_the_pod() -> None:
    async def story() -> None:
        runtime = _Runtime()
        runtime.start_problems = {"a": [ContainerNotStarted('exec: "x": not found')]}
        scene = Scene(a_pod("a"), runtime)
        await scene.quiet()
        state = scene.last.states["a"]
        assert isinstance(state, Terminated)
        assert (state.exit_code, state.reason, scene.phase) == (128, "StartError", "Failed")

    run(story)


@pytest.mark.parametrize(
    ("term", "grace", "ended_at", "code"),
    [(0.0, 30, 0.0, 143), (5.0, 30, 5.0, 143), (None, 30, 30.0, 137), (5.0, 2, 2.0, 137), (None, 1, 1.0, 137)],
)
def test_the_grace_period(term: float | None, grace: int, ended_at: float, code: int) -> None:
    async def story() -> None:
        scene = Scene(a_pod("a"), _Runtime(term))
        await scene.quiet()
        scene.worker.update(a_pod("a", grace=grace))
        await scene.pass_time(40)
        state = scene.last.states["a"]
        assert isinstance(state, Terminated)
        assert (scene.runtime.running["a"].ended_at, state.exit_code) == (ended_at, code)
        assert scene.reports.deleted

    run(story)


def test_a_shorter_grace_period_comes_too_late_for_what_is_being_stopped() -> None:
    async def story() -> None:
        scene = Scene(a_pod("a"), _Runtime(None))
        await scene.quiet()
        scene.worker.update(a_pod("a", grace=15))
        await scene.pass_time(10)
        assert scene.runtime.running["a"].ended_at < 0
        scene.worker.update(a_pod("a", grace=1))
        await scene.pass_time(10)
        assert scene.runtime.running["a"].ended_at == 15.0

    run(story)


def test_a_pod_that_vanishes_still_gets_its_grace_period() -> None:
    async def story() -> None:
        scene = Scene(a_pod("a", spec={"terminationGracePeriodSeconds": 7}), _Runtime(None))
        await scene.quiet()
        scene.worker.vanish()
        await scene.life
        assert scene.runtime.running["a"].ended_at == 7.0
        assert not scene.reports.deleted, "there is nothing to delete"

    run(story)


def test_deletion_ends_the_wait_for_what_is_missing() -> None:
    async def story() -> None:
        runtime = _Runtime()
        runtime.problems = [NotYet("no map")] * 1000
        scene = Scene(a_pod("a", "b"), runtime)
        await scene.quiet()
        scene.worker.update(a_pod("a", "b", grace=30))
        await scene.quiet()
        assert scene.phase == "Failed"
        assert {one.reason for one in scene.last.states.values() if isinstance(one, Terminated)} == {
            "ContainerStatusUnknown"
        }
        assert scene.reports.deleted
        assert not runtime.running

    run(story)


@pytest.mark.parametrize("source", ["runtime", "room"])
def test_a_refused_pod_never_starts(source: str) -> None:
    async def story() -> None:
        verdict, runtime = Verdict("No", "no"), _Runtime()
        runtime.refused = verdict if source == "runtime" else None
        scene = Scene(a_pod("a"), runtime, room=verdict if source == "room" else None)
        await scene.quiet()
        assert scene.reports.rejected == verdict
        assert (runtime.running, scene.reports.states, scene.worker.over) == ({}, [], True)

    run(story)


def test_the_deadline_ends_it_and_is_said_when_nothing_runs_any_more() -> None:
    async def story() -> None:
        spec = {"activeDeadlineSeconds": 5, "terminationGracePeriodSeconds": 3}
        scene = Scene(a_pod("a", spec=spec), _Runtime(None))
        await scene.pass_time(6)
        assert scene.phase == "Running"
        await scene.pass_time(10)
        assert scene.last.verdict
        assert (scene.phase, scene.last.verdict.reason) == ("Failed", "DeadlineExceeded")

    run(story)


def _seen(state: str) -> dict[str, Any]:
    return {"phase": "Running", "containerStatuses": [{"name": "a", "state": {state: {"exitCode": 0}}}]}


def test_pods_of_an_earlier_program_are_lost_or_adopted() -> None:
    async def story() -> None:
        lost = Scene(a_pod("a", status=_seen("running")))
        await lost.quiet()
        state = lost.last.states["a"]
        assert isinstance(state, Terminated)
        assert (lost.phase, state.exit_code, state.reason) == ("Failed", 137, "ContainerStatusUnknown")
        ended = Scene(a_pod("a", status=_seen("terminated")))
        await ended.quiet()
        assert ended.phase == "Succeeded"
        runtime = _Runtime()
        survivor = _Fake(0.0)
        runtime.adopted = Adopted(Site("10.0.0.9", "127.0.0.1", {}), {"a": survivor})
        adopted = Scene(a_pod("a", status=_seen("running")), runtime)
        await adopted.quiet()
        assert adopted.last.states["a"] == Running("then", "id")
        assert adopted.last.pod_ip == "10.0.0.9"
        survivor.end(2)
        await adopted.quiet()
        assert adopted.phase == "Failed"
        waiting = Scene(a_pod("a", status=_seen("waiting")))
        await waiting.quiet()
        assert waiting.phase == "Running", "it had not begun"

    run(story)


def test_when_somebody_else_made_the_phase_final_it_ends_silently() -> None:
    async def story() -> None:
        scene = Scene(a_pod("a"))
        await scene.quiet()
        said = len(scene.reports.states)
        scene.worker.update(a_pod("a", status={"phase": "Failed", "reason": "Evicted"}))
        await scene.quiet()
        assert scene.runtime.running["a"].ended.done()
        assert len(scene.reports.states) == said
        assert scene.worker.over

    run(story)


def test_shutting_down_ends_the_pod_and_says_why() -> None:
    async def story() -> None:
        scene = Scene(a_pod("a"), _Runtime(None))
        await scene.quiet()
        await scene.worker.shut_down(2)
        assert scene.runtime.running["a"].ended_at == 2.0
        assert scene.last.verdict
        assert (scene.phase, scene.last.verdict.reason) == ("Failed", "Terminated")

    run(story)
