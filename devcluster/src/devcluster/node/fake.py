"""Pods that only pretend to run, as their annotations say."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from devcluster.node import clock
from devcluster.node.addresses import Block
from devcluster.node.fields import Site
from devcluster.node.model import Container, Pod
from devcluster.node.runtime import Adopted, RunningContainer
from devcluster.node.status import COMPLETED, ERROR, Terminated, Verdict

PREFIX: Final = "fake.devcluster/"
NETWORK: Final = 10
_TERMINATED, _KILLED = 143, 137


@dataclass(frozen=True)
class Ending:
    """How a container ends."""

    code: int
    reason: str
    message: str = ""


@dataclass(frozen=True)
class Script:
    """What a fake pod does.

    Attributes:
        run_seconds: Until it ends by itself with `exit_code`; None: it runs until told.
        exit: It ends at once, like this.
        refuse: The reason why the node does not take it; empty: it does.
        term_seconds: From SIGTERM to its end.
    """

    start_seconds: float = 0.0
    run_seconds: float | None = None
    exit_code: int = 0
    exit: Ending | None = None
    refuse: str = ""
    term_seconds: float = 0.0
    ignore_term: bool = False


def parse_script(annotations: Mapping[str, str]) -> Script:
    """Reads the annotations.

    Raises:
        ValueError: A value cannot be understood.
    """
    said = {key.removeprefix(PREFIX): value for key, value in annotations.items() if key.startswith(PREFIX)}
    return Script(
        start_seconds=float(said.get("start-seconds", 0)),
        run_seconds=float(said["run-seconds"]) if "run-seconds" in said else None,
        exit_code=int(said.get("exit-code", 0)),
        exit=parse_ending(said["exit"]) if said.get("exit") else None,
        refuse=said.get("refuse", ""),
        term_seconds=float(said.get("term-seconds", 0)),
        ignore_term=said.get("ignore-term") == "true",
    )


def parse_ending(text: str) -> Ending:
    """`CODE`, `CODE:REASON` or `CODE:REASON:MESSAGE`."""
    code, _, rest = text.partition(":")
    reason, _, message = rest.partition(":")
    return Ending(int(code), reason or _reason(int(code)), message)


def _reason(code: int) -> str:
    return ERROR if code else COMPLETED


class FakePod:
    """The runtime of one fake pod."""

    def __init__(self, pod: Pod, block: Block, host_ip: str, allocatable: Mapping[str, str]) -> None:
        self._pod, self._block = pod, block
        self._site = Site("", host_ip, allocatable)
        self._containers: list[FakeContainer] = []

    def refusal(self) -> Verdict | None:
        """The `refuse` annotation, or a script that cannot be read."""
        try:
            script = parse_script(self._pod.annotations)
        except ValueError as error:
            return Verdict("BadScript", f"an annotation {PREFIX}... cannot be understood: {error}")
        return Verdict(script.refuse, f"annotation {PREFIX}refuse") if script.refuse else None

    async def prepare(self) -> Site:
        """Waits `start-seconds`."""
        await asyncio.sleep(self._script().start_seconds)
        address = self._site.host_ip if self._pod.host_network else self._block.take(NETWORK)
        self._site = Site(address, self._site.host_ip, self._site.allocatable)
        return self._site

    async def start(self, container: Container) -> RunningContainer:
        """Starts to pretend; an init container succeeds at once."""
        its = Script(run_seconds=0) if container in self._pod.init_containers else self._script()
        fake = FakeContainer(its, clock.now(), f"fake://{self._pod.uid}/{container.name}")
        if container not in self._pod.init_containers:
            self._containers.append(fake)
        return fake

    def adopt(self) -> Adopted | None:
        """A fake container survives this program: it goes on where it was."""
        running: dict[str, RunningContainer] = {}
        for container in self._pod.containers:
            if "running" in self._pod.seen.get(container.name, {}):
                started_at = self._pod.seen[container.name]["running"].get("startedAt") or clock.now()
                fake = FakeContainer(self._script(), started_at, f"fake://{self._pod.uid}/{container.name}")
                self._containers.append(fake)
                running[container.name] = fake
        if not running:
            return None
        if not self._pod.host_network:
            self._block.keep(self._pod.ip)
        self._site = Site(self._pod.ip, self._site.host_ip, self._site.allocatable)
        return Adopted(self._site, running)

    def changed(self, pod: Pod) -> None:
        """Lets the containers follow a changed script."""
        self._pod = pod
        for container in self._containers:
            container.follow(self._script())

    async def remove(self) -> None:
        """Frees the address."""
        self._block.give_back(self._site.pod_ip)

    def _script(self) -> Script:
        try:
            return parse_script(self._pod.annotations)
        except ValueError:  # refused at the start; a bad patch later changes nothing
            return self._containers[0].script if self._containers else Script()


class FakeContainer:
    """A container that is only a timer."""

    def __init__(self, script: Script, started_at: str, container_id: str) -> None:
        self.started_at, self.container_id = started_at, container_id
        self.ended: asyncio.Future[Terminated] = asyncio.get_running_loop().create_future()
        self.script = script
        self._timer: asyncio.TimerHandle | None = None
        self._terminating = False
        self.follow(script)

    def follow(self, script: Script) -> None:
        """Acts on the script, from the start of the container on."""
        self.script = script
        if self._terminating or self.ended.done():
            return
        if script.exit:
            self._end(script.exit)
        elif script.run_seconds is not None:
            left = script.run_seconds - (clock.parse(clock.precise_now()) - clock.parse(self.started_at))
            self._end_in(max(left, 0.0), Ending(script.exit_code, _reason(script.exit_code)))
        elif self._timer:
            self._timer.cancel()

    def terminate(self) -> None:
        """SIGTERM."""
        if not self._terminating and not self.ended.done():
            self._terminating = True
            if not self.script.ignore_term:
                self._end_in(self.script.term_seconds, Ending(_TERMINATED, ERROR))
            elif self._timer:
                self._timer.cancel()

    def kill(self) -> None:
        """SIGKILL."""
        self._end(Ending(_KILLED, ERROR))

    def _end_in(self, seconds: float, ending: Ending) -> None:
        if self._timer:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._end, ending)

    def _end(self, ending: Ending) -> None:
        if self._timer:
            self._timer.cancel()
        if not self.ended.done():
            state = Terminated(
                ending.code, ending.reason, ending.message, self.started_at, clock.now(), self.container_id
            )
            self.ended.set_result(state)
