"""`python -m tests.chaos`: the crash sweep, pairs of leaders, and random seeds, against a control plane of their own.

python -m tests.chaos all --seeds 300        # what `make chaos SEEDS=300` runs
python -m tests.chaos sweep --script full
python -m tests.chaos pairs --script incident
python -m tests.chaos seeds --count 50 --first 1000
python -m tests.chaos seeds --seed 17        # one run again, its plan printed
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tests.chaos.arena import Arena, start_cluster
from tests.chaos.leaders import pairs
from tests.chaos.plans import plan_of
from tests.chaos.runs import Outcome
from tests.chaos.scripts import SCRIPTS
from tests.chaos.seeds import seeds
from tests.chaos.sweep import sweep


@dataclass
class Report:
    """Counts outcomes and prints them as they come."""

    verbose: bool
    runs: int = 0
    red: list[Outcome] = field(default_factory=list)
    longest: float = 0.0
    kills: int = 0
    points: int = 0

    async def take(self, title: str, outcomes: AsyncIterator[Outcome]) -> None:
        """Prints a line per run that matters, and a summary."""
        began, before, red, points_before = time.monotonic(), self.runs, len(self.red), self.points
        async for outcome in outcomes:
            self.runs += 1
            self.kills += max(0, outcome.starts - 1)
            self.points += outcome.points
            if outcome.violations:
                self.red.append(outcome)
                print(f"RED  {outcome}\n    log: {outcome.log}", flush=True)
                if outcome.label.startswith("seed"):
                    print(plan_of(int(outcome.label.split()[1])), flush=True)
            elif self.verbose:
                print(f"ok   {outcome}", flush=True)
            if not outcome.violations and outcome.log:
                outcome.log.unlink(missing_ok=True)
        count, bad = self.runs - before, len(self.red) - red
        points = f", {self.points - points_before} points" if self.points > points_before else ""
        print(f"{title}: {count} runs{points}, {bad} red, {time.monotonic() - began:.0f} s", flush=True)


async def run(given: argparse.Namespace, directory: Path) -> int:
    """Runs what was asked for; returns the exit status."""
    report = Report(given.verbose)
    with start_cluster(directory) as cluster:
        async with Arena(cluster, given.slots) as arena:
            if given.what in ("sweep", "all"):
                await report.take(f"crash sweep of {given.script}", sweep(arena, given.script))
            if given.what in ("pairs", "all"):
                script = given.script if given.what == "pairs" else "incident"
                await report.take(f"pairs over {script}", pairs(arena, script, range(1, given.calls + 1)))
            if given.what in ("seeds", "all"):
                await report.take("seeds", seeds(arena, _numbers(given)))
    print(f"{report.runs} runs, {report.kills} restarts of operators, {len(report.red)} red")
    for outcome in report.red:
        print(f"  {outcome.label}: {'; '.join(map(str, outcome.violations))}"[:400])
    return 1 if report.red else 0


def _numbers(given: argparse.Namespace) -> Iterable[int]:
    if given.seed is not None:
        print(plan_of(given.seed))
        return (given.seed,)
    return range(given.first, given.first + given.seeds)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["all", "sweep", "pairs", "seeds"])
    parser.add_argument("--script", choices=list(SCRIPTS), default="full", help="the life that is swept")
    parser.add_argument("--calls", type=int, default=25, help="how many calls of the old leader are held, one per pair")
    parser.add_argument("--seeds", "--count", type=int, default=20, help="how many seeds")
    parser.add_argument("--first", type=int, default=1, help="the first of them")
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--slots", type=int, default=8, help="how many lives at once")
    parser.add_argument("--directory", type=Path, help="where cluster and logs are kept; by default a temporary folder")
    parser.add_argument("--verbose", action="store_true", help="a line per run, also for green ones")
    given = parser.parse_args()
    directory = given.directory or Path(tempfile.mkdtemp(prefix="chaos-"))
    print(f"cluster and logs: {directory}", flush=True)
    return asyncio.run(run(given, directory))


if __name__ == "__main__":
    sys.exit(main())
