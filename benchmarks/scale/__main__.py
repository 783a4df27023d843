"""Measures the operator at scale.

    python -m benchmarks.scale [FIGURE ...] [--quick]

Prints one JSON line per figure, with its goal where it has one. Without names all are measured: in full that takes
about an hour on two cores, and the machine must do nothing else. `--quick` shows in a few minutes that everything
works; its figures say nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from benchmarks.scale.creating import gang_create
from benchmarks.scale.fleet import fleet
from benchmarks.scale.restarting import gang_restart
from benchmarks.scale.running import jobs_running


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    gang: int = 5000
    pairs: int = 2
    jobs: int = 500
    pods_each: int = 8
    fake_nodes: int = 60
    nodes: int = 5000
    pods: int = 20_000
    quiet_seconds: float = 120.0
    placements: int = 200
    instances: int = 300


FULL = Scale()
QUICK = Scale(200, 1, 20, 8, 6, 100, 400, 10.0, 10, 20)


def measures(scale: Scale) -> dict[str, Callable[[], Awaitable[list[str]]]]:
    """What can be measured, by name."""
    optimum = ("benchmarks.placement_optimum", f"--instances={scale.instances}")
    return {
        "create": lambda: gang_create(scale.gang, scale.pairs),
        "fleet": lambda: fleet(scale.nodes, scale.pods, scale.quiet_seconds),
        "restart": lambda: gang_restart(scale.gang),
        "placement": lambda: _run("benchmarks.placement_speed", f"--rounds={scale.placements}"),
        "optimum": lambda: _run(*optimum),
        "jobs": lambda: jobs_running(scale.jobs, scale.pods_each, scale.fake_nodes, scale.pairs),
    }


async def _run(module: str, *arguments: str) -> list[str]:
    """A benchmark of its own, in a process of its own."""
    argv = [sys.executable, "-m", module, *arguments]
    done = await asyncio.to_thread(subprocess.run, argv, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.splitlines()


async def main() -> int:
    """Measures what is asked for; one that fails does not keep the others from being measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"of {', '.join(measures(FULL))}; by default all")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    given = parser.parse_args()
    chosen = measures(QUICK if given.quick else FULL)
    unknown = [name for name in given.figures if name not in chosen]
    if unknown:
        parser.error(f"no figure {', '.join(unknown)}; there are {', '.join(chosen)}")
    failed = 0
    for name in given.figures or chosen:
        try:
            for line in await chosen[name]():
                print(line, flush=True)
        except Exception as error:
            print(f"{name} could not be measured: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
