"""What a change of what is free costs while many gangs wait.

    python -m benchmarks.queue_speed [--nodes 5000] [--waiting 500] [--shapes 50] [--rounds 20]

A full cluster of nodes with eight GPUs, held by gangs and foreign pods; gangs of 1 to 400 pods wait, and nobody fits.
In each round one foreign pod ends and another begins. `queue_look_ms` is the time until it is known whose turn it is,
`queue_ask_all_ms` until every gang that waits has asked and been told why it waits, as at a resync.
Prints one JSON line per figure.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from meshwright.cluster.caches import NodeCache, PodCache
from meshwright.cluster.projection import PodRecord, project_node
from meshwright.gang_queue import GangQueue
from meshwright.placement.model import GangRequest, Refused, Reservation, RoleRequest
from meshwright.placement.supply.capacity import PodUse
from meshwright.placement.supply.resources import Resources

START = datetime(2026, 1, 1, tzinfo=UTC)
POD = Resources(cpu=8000, memory=2**34, gpus=8, pods=1)
SMALL = Resources(cpu=1000, memory=2**30, gpus=1, pods=1)
NO_SERVER: Any = None


def a_node(name: str) -> dict[str, Any]:
    """A node with eight GPUs."""
    allocatable = {"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "8"}
    ready = {"type": "Ready", "status": "True"}
    return {"metadata": {"name": name, "uid": name}, "status": {"allocatable": allocatable, "conditions": [ready]}}


def a_full_cluster(nodes: int) -> tuple[PodCache, NodeCache, list[Reservation]]:
    """Half of the nodes held by gangs of 50 pods, half with two foreign pods that take a GPU each."""
    pods, every = PodCache(NO_SERVER), NodeCache(NO_SERVER)
    names = [f"node-{i:05}" for i in range(nodes)]
    for name in names:
        every._changed(None, project_node(a_node(name)))
    for name in names[nodes // 2 :]:
        for number in range(2):
            pods.reflectors[0].objects[f"{name}/{number}"] = PodRecord(PodUse(name, SMALL))
    gangs = []
    for first in range(0, nodes // 2, 50):
        members = {("worker", i): name for i, name in enumerate(names[first : first + 50])}
        gangs.append(Reservation(f"running-{first}", 1, members, {"worker": POD}))
    return pods, every, gangs


def a_gang(number: int, shapes: int) -> GangRequest:
    """A gang that waits; those of one shape ask for the same."""
    size = 1 + (number % shapes) * 400 // shapes
    created = START + timedelta(seconds=number)
    return GangRequest(f"gang-{number:04}", "team", f"job-{number}", (RoleRequest("worker", size, POD),), created)


def measure(nodes: int, waiting: int, shapes: int, rounds: int) -> tuple[list[float], list[float]]:
    """Milliseconds of the looks, and of asking for everybody."""
    pods, every, gangs = a_full_cluster(nodes)
    queue = GangQueue(pods, every)
    for gang in gangs:
        queue.reserve(gang)
    requests = [a_gang(i, shapes) for i in range(waiting)]
    now = START + timedelta(days=1)
    for request in requests:
        assert isinstance(queue.ask(request, now), Refused)
    chance, looks, asks = random.Random(nodes), [], []
    for _ in range(rounds):
        use = PodUse(f"node-{chance.randrange(nodes // 2, nodes):05}", SMALL)
        pods.on_use(use, None)
        began = time.perf_counter()
        assert queue.turns(now) == ()
        looks.append((time.perf_counter() - began) * 1000)
        pods.on_use(None, use)
        began = time.perf_counter()
        for request in requests:
            queue.ask(request, now)
        asks.append((time.perf_counter() - began) * 1000)
    return looks, asks


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--waiting", type=int, default=500)
    parser.add_argument("--shapes", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    given = {"nodes": options.nodes, "waiting": options.waiting, "shapes": options.shapes}
    for name, times in zip(("queue_look_ms", "queue_ask_all_ms"), measure(**given, rounds=options.rounds), strict=True):
        line = {"name": name, "value": round(statistics.median(times), 2), "unit": "ms", "better": "lower"}
        print(json.dumps({**line, "worst": round(max(times), 2), **given}), flush=True)


if __name__ == "__main__":
    main()
