"""Scripted lives: what happens to a job, step by step."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from tests.chaos.life import Life

Script = Callable[[Life], Awaitable[None]]


async def start(life: Life) -> None:
    """From creation until every pod runs."""
    await life.create()
    await life.settled()


async def incident(life: Life) -> None:
    """A start, and one worker that ends with 1."""
    await start(life)
    await life.exit("1", charged=True, index=1)
    await life.settled()


async def full(life: Life) -> None:
    """All of it: exits of one and of all, a deleted pod, an OOM, suspend and resume, success."""
    await incident(life)
    await life.exit("1", charged=True, everyone=True)
    await life.settled()
    await life.delete_pod(0)
    await life.settled()
    await life.exit("137:OOMKilled", charged=True, index=2)
    await life.settled()
    await life.suspend()
    await life.resume()
    await life.settled()
    await life.succeed()


async def called_off(life: Life) -> None:
    """Suspended while it starts, if the operator can be caught in the middle of that."""
    await life.create()
    await life.settled_or_held()
    await life.suspend()


SCRIPTS: Final[dict[str, Script]] = {"start": start, "incident": incident, "full": full, "called-off": called_off}
