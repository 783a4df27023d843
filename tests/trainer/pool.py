"""A pool of processes that stand in for ranks: started once, used by many tests, replaced when one of them hangs.

A task is named as `module:function`; every rank of it has a process group of its own, which ends with it.
"""

from __future__ import annotations

import importlib
import multiprocessing
import os
import traceback
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

TIMEOUT_SECONDS = 20.0
"""What a collective may wait for another rank."""
PATIENCE_SECONDS = 60.0
"""What a task may take before its ranks count as hung."""


class RankFailed(AssertionError):
    """A rank raised, died or hung."""


@dataclass
class _Worker:
    process: BaseProcess
    pipe: Connection


class Pool:
    """Ranks 0 to size - 1."""

    def __init__(self, size: int = 4) -> None:
        self.size = size
        self._workers: list[_Worker] = []
        self._tasks = 0

    def run(self, ranks: int, task: str, *args: Any, patience: float = PATIENCE_SECONDS) -> list[Any]:
        """What `task(*args)` returns on each of so many ranks.

        Raises:
            RankFailed: with the first failing rank's traceback; the pool is started anew by the next call.
        """
        if ranks > self.size:
            raise ValueError(f"the pool has {self.size} processes, not {ranks}")
        if not self._workers:
            self._start()
        self._tasks += 1
        for worker in self._workers[:ranks]:
            worker.pipe.send((ranks, self._tasks, task, args))
        answers = [self._answer(rank, task, patience) for rank in range(ranks)]
        failed = [(rank, text) for rank, (good, text) in enumerate(answers) if not good]
        if failed:
            self.close()
            rank, text = min(failed, key=lambda found: ("Connection closed" in str(found[1]), found[0]))
            raise RankFailed(f"rank {rank} of {ranks} in {task}:\n{text}")
        return [value for _, value in answers]

    def close(self) -> None:
        """Ends the processes."""
        for worker in self._workers:
            worker.process.kill()
            worker.process.join()
            worker.pipe.close()
        self._workers = []

    def _answer(self, rank: int, task: str, patience: float) -> tuple[bool, Any]:
        pipe = self._workers[rank].pipe
        try:
            return pipe.recv() if pipe.poll(patience) else (False, f"{task} hung for {patience} s")
        except EOFError:
            return False, "the process died"

    def _start(self) -> None:
        # The store that ranks find each other by lives as long as the pool; every task has a prefix in it.
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        # Torch takes seconds to import: one process does it, and the ranks are forked from it.
        multiprocessing.set_forkserver_preload(["meshwright_trainer.engines.synchronous"])
        context = multiprocessing.get_context("forkserver")
        for rank in range(self.size):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(rank, self._store.port, theirs), daemon=True)
            process.start()
            theirs.close()
            self._workers.append(_Worker(process, ours))


def _serve(rank: int, port: int, pipe: Connection) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    torch.set_num_threads(1)
    store = TCPStore("127.0.0.1", port, is_master=False, timeout=timedelta(seconds=TIMEOUT_SECONDS))
    while True:
        try:
            ranks, number, task, args = pipe.recv()
        except EOFError:
            return
        pipe.send(_attempt(store, rank, ranks, number, task, args))


def _attempt(store: Any, rank: int, ranks: int, number: int, task: str, args: tuple[Any, ...]) -> tuple[bool, Any]:
    import torch.distributed as dist

    try:
        dist.init_process_group(
            "gloo",
            store=dist.PrefixStore(  # type: ignore[attr-defined]
                f"task-{number}", store
            ),
            rank=rank,
            world_size=ranks,
            timeout=timedelta(seconds=TIMEOUT_SECONDS),
        )
        module, _, function = task.partition(":")
        return True, getattr(importlib.import_module(module), function)(*args)
    except BaseException:
        return False, traceback.format_exc()
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
