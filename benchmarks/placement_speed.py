"""How long one placement takes on large clusters.

    python -m benchmarks.placement_speed [--rounds N]

Trees of leaves with 16 nodes and spines with 20 leaves, half busy, random gangs of 8 to 512 pods of a whole node and of
half a node. Each round places one gang in a new snapshot, as the operator does: verdicts on nodes, free room and the
search are in the figure; the tree is built before, since nodes' labels seldom change.
Prints one JSON line per size of cluster.
"""

from __future__ import annotations

import argparse
import gc
import json
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.placement_instances import GPUS, TOPOLOGY, gang
from meshwright.placement.model import Snapshot
from meshwright.placement.nesting.layout import Axis, Layout, Pattern, Within
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.resources import Resources
from meshwright.placement.topology.tree import HOSTNAME

GOALS = {640: None, 2500: None, 5000: 50.0, 15000: 200.0}


def cluster(nodes: int, chance: random.Random) -> Snapshot:
    """A cluster in which half of the nodes are free, some are half free."""
    every, free = [], {}
    for i in range(nodes):
        name = f"node-{i:05}"
        labels = {"spine": f"s{i // 320}", "leaf": f"l{i // 16}", HOSTNAME: name}
        every.append(NodeCapacity(name, Resources(cpu=96_000, memory=2**40, gpus=GPUS, pods=110), labels))
        used = chance.choice([0, 0, 4, 8])
        free[name] = Resources(cpu=96_000 - used * 8000, memory=2**40 - used * 2**36, gpus=GPUS - used, pods=100)
    return Snapshot(tuple(every), free)


def layout(chance: random.Random) -> Layout:
    """A mesh of pipeline, data and tensor over pods, as large models have."""
    pipeline, data, tensor = chance.choice([1, 2, 4, 8]), chance.choice([4, 8, 16, 32]), chance.choice([1, 2])
    axes = (Axis("pipeline", pipeline, 1.0, Pattern.NEIGHBOURS), Axis("data", data, 4.0), Axis("tensor", tensor, 64.0))
    return Layout(axes, (Within(frozenset({"tensor"}), "leaf", required=True),))


def milliseconds(nodes: int, rounds: int) -> Iterator[tuple[float, float]]:
    """Times of single placements by the clock, and what of them was spent on the CPU."""
    chance = random.Random(nodes)
    solver = TopologySolver(TOPOLOGY)
    room = cluster(nodes, chance)
    solver.place(gang(layout(chance), GPUS), room)  # builds the tree
    for _ in range(rounds):
        request = gang(layout(chance), chance.choice([4, 8]))
        fresh = replace(room, _verdicts={})
        gc.collect()
        begun, worked = time.perf_counter(), time.process_time()
        solver.place(request, fresh)
        yield (time.perf_counter() - begun) * 1000, (time.process_time() - worked) * 1000


def main() -> None:
    """Measures all sizes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200, help="placements for each size")
    rounds = parser.parse_args().rounds
    for nodes, goal in GOALS.items():
        times, cpu = (sorted(column) for column in zip(*milliseconds(nodes, rounds), strict=True))
        last = min(rounds - 1, int(rounds * 0.99))
        p99 = times[last]
        line = {"name": f"placement_p99_ms_{nodes}", "value": round(p99, 2), "unit": "ms", "better": "lower"}
        if goal:
            line["goal"] = goal
        print(
            json.dumps(
                {
                    **line,
                    "median_ms": round(statistics.median(times), 2),
                    "cpu_p99_ms": round(cpu[last], 2),
                    "rounds": rounds,
                }
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
