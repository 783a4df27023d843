"""The work queue: never twice at once, never forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from meshwright.workqueue import WorkQueue


class Passes:
    """A handler that waits until it is let go, and notes what it was called for."""

    def __init__(self, rest: float = 0.0) -> None:
        self.rest = rest
        self.begun: list[str] = []
        self.at_once: dict[str, int] = {}
        self.most_at_once = 0
        self.gate = asyncio.Event()

    async def __call__(self, key: str) -> float:
        self.begun.append(key)
        self.at_once[key] = self.at_once.get(key, 0) + 1
        self.most_at_once = max(self.most_at_once, self.at_once[key])
        await self.gate.wait()
        self.at_once[key] -= 1
        return self.rest


@asynccontextmanager
async def workers(queue: WorkQueue, passes: Passes, count: int = 3) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(queue.work(passes)) for _ in range(count)]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        queue.close()


async def settle() -> None:
    """Lets everything run that can run without time passing."""
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_key_is_worked_on_once_however_often_it_was_added() -> None:
    queue, passes = WorkQueue(), Passes()
    for _ in range(5):
        queue.add("a")
    async with workers(queue, passes):
        passes.gate.set()
        await settle()
    assert passes.begun == ["a"]


async def test_a_key_that_is_added_while_it_is_worked_on_comes_again_but_not_at_the_same_time() -> None:
    queue, passes = WorkQueue(), Passes()
    async with workers(queue, passes):
        queue.add("a")
        await settle()
        queue.add("a")
        await settle()
        assert passes.begun == ["a"]
        passes.gate.set()
        await settle()
    assert passes.begun == ["a", "a"]
    assert passes.most_at_once == 1


async def test_different_keys_are_worked_on_at_once() -> None:
    queue, passes = WorkQueue(), Passes()
    async with workers(queue, passes):
        queue.add("a")
        queue.add("b")
        await settle()
        assert sorted(passes.begun) == ["a", "b"]


async def test_what_happens_to_a_key_that_rests_is_gathered_into_one_pass() -> None:
    queue, passes = WorkQueue(), Passes(rest=0.05)
    passes.gate.set()
    async with workers(queue, passes):
        for _ in range(100):
            queue.add("a")
            await settle()
        assert passes.begun == ["a"]
        async with asyncio.timeout(5):
            while len(passes.begun) < 2:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        assert passes.begun == ["a", "a"]
        queue.add("a")
        await settle()
    assert passes.begun == ["a", "a", "a"], "a rested key is worked on at once"


async def test_a_key_that_rests_keeps_no_other_waiting() -> None:
    queue, passes = WorkQueue(), Passes(rest=3600)
    passes.gate.set()
    async with workers(queue, passes, count=1):
        queue.add("a")
        queue.add("b")
        await settle()
    assert passes.begun == ["a", "b"]


async def test_the_earliest_wish_for_later_counts() -> None:
    queue, passes = WorkQueue(), Passes()
    passes.gate.set()
    async with workers(queue, passes):
        queue.add_after("a", 3600)
        queue.add_after("a", 0.01)
        queue.add_after("a", 7200)
        async with asyncio.timeout(5):
            while not passes.begun:
                await asyncio.sleep(0.005)
    assert passes.begun == ["a"]


async def test_a_forgotten_wish_does_not_come() -> None:
    queue, passes = WorkQueue(), Passes()
    passes.gate.set()
    async with workers(queue, passes):
        queue.add_after("a", 0.01)
        queue.forget("a")
        queue.add_after("b", 0.02)
        async with asyncio.timeout(5):
            while not passes.begun:
                await asyncio.sleep(0.005)
    assert passes.begun == ["b"]


async def test_it_says_how_long_the_oldest_key_waits() -> None:
    queue = WorkQueue()
    assert queue.oldest_seconds() == 0
    queue.add("a")
    await asyncio.sleep(0.02)
    assert queue.oldest_seconds() >= 0.02
    # Metrics are served from a thread of their own.
    assert await asyncio.to_thread(queue.oldest_seconds) >= 0.02
