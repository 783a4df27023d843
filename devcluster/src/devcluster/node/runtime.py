"""What a kind of node must be able to do; the rest of a pod's life is common to all."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from devcluster.node.fields import Site
from devcluster.node.model import Container, Pod
from devcluster.node.status import Terminated, Verdict


class RunningContainer(Protocol):
    """A container that was started."""

    @property
    def started_at(self) -> str:
        """As the API writes times."""

    @property
    def container_id(self) -> str:
        """For the status."""

    @property
    def ended(self) -> asyncio.Future[Terminated]:
        """Becomes the final state."""

    def terminate(self) -> None:
        """Asks it to end (SIGTERM)."""

    def kill(self) -> None:
        """Ends it (SIGKILL)."""


class PodRuntime(Protocol):
    """Runs the containers of one pod."""

    def refusal(self) -> Verdict | None:
        """Why this node does not take the pod."""

    async def prepare(self) -> Site:
        """Gives it folders and an address.

        Raises:
            NotYet: Something is missing; to be called again.
        """

    async def start(self, container: Container) -> RunningContainer:
        """Starts one container. When cancelled, nothing of it stays.

        Raises:
            NotYet: Something is missing; to be called again.
            ContainerNotStarted: It can never start.
        """

    def adopt(self) -> Adopted | None:
        """Containers that still run from before this program started; None when they are lost."""

    def changed(self, pod: Pod) -> None:
        """Takes note of a newer version of the pod."""

    async def remove(self) -> None:
        """Frees everything; no container runs any more."""


@dataclass(frozen=True)
class Adopted:
    """What was found of a pod that an earlier program had started."""

    site: Site
    running: dict[str, RunningContainer]
