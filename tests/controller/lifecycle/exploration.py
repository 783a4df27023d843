"""Exhaustive exploration: every interleaving of two leaders, their pods and what may go wrong, within a budget.

    python -m tests.controller.lifecycle.exploration            # as in the tests
    python -m tests.controller.lifecycle.exploration --full     # larger budgets; minutes

Breadth first over `Simulation.steps`. `promises` are checked at every step; afterwards every state that was found must
come to rest, in the right way, if nothing else goes wrong.
"""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import deque
from dataclasses import dataclass
from typing import Final

from meshwright.lifecycle.conditions import holds
from meshwright.lifecycle.phases import TERMINAL
from meshwright.lifecycle.success import recorded
from meshwright_api import names
from meshwright_api.status import Phase
from tests.controller.lifecycle.mirror import Mirror
from tests.controller.lifecycle.promises import PROMISES, Violation
from tests.controller.lifecycle.simulation import Simulation
from tests.controller.lifecycle.world import Budgets, Setting, Step, World


@dataclass(frozen=True)
class Found:
    """What an exploration came to."""

    setting: Setting
    states: int
    transitions: int
    at_rest: int
    answers: int
    """Views that `decide` was asked about for the first time."""
    seconds: float

    def __str__(self) -> str:
        return (
            f"{self.setting.name:<28} {self.states:>9,} states {self.transitions:>10,} transitions "
            f"{self.at_rest:>7,} at rest {self.answers:>7,} views {self.seconds:6.1f} s"
        )


class Broken(AssertionError):
    """A promise was broken; the message is the shortest way there."""

    def __init__(self, violation: Violation, way: list[str]) -> None:
        super().__init__("\n  ".join([f"{violation} after {len(way)} steps:", *way]))
        self.promise = violation.promise


class Explorer:
    """Explores one setting after another; what `decide` answered for one is not asked again for the next."""

    def __init__(self) -> None:
        self._mirrors: dict[tuple[int, int, bool], Mirror] = {}

    def explore(self, setting: Setting) -> Found:
        """Explores everything that the setting allows.

        Raises:
            Broken: a promise does not hold.
        """
        key = (setting.pods, setting.max_restarts, setting.force)
        mirror = self._mirrors.setdefault(key, Mirror(*key))
        gc.disable()  # Nothing here is cyclic, and the collector would walk through every state again and again.
        try:
            return _explore(setting, Simulation(setting, mirror))
        finally:
            gc.enable()


def _explore(setting: Setting, simulation: Simulation) -> Found:
    started, known = time.perf_counter(), simulation.mirror.views
    first = simulation.start()
    came_from: dict[World, tuple[World, str] | None] = {first: None}
    queue = deque([first])
    transitions = 0
    while queue:
        world = queue.popleft()
        try:
            for label, after in simulation.steps(world):
                transitions += 1
                if after not in came_from:
                    came_from[after] = (world, label)
                    queue.append(after)
        except Violation as violation:
            raise Broken(violation, _way(came_from, world)) from violation
    at_rest = _all_come_to_rest(simulation, came_from)
    seconds = time.perf_counter() - started
    return Found(setting, len(came_from), transitions, at_rest, simulation.mirror.views - known, seconds)


def _all_come_to_rest(simulation: Simulation, came_from: dict[World, tuple[World, str] | None]) -> int:
    """Follows the calm way from every state: nothing else goes wrong, everybody goes on."""
    rests: set[World] = set()
    settled: set[World] = set()
    for start in came_from:
        way: list[World] = []
        on_way: set[World] = set()
        world = start
        while world not in settled:
            if world in on_way:
                violation = Violation("decisions come to rest", "the calm way goes in a circle")
                raise Broken(violation, [*_way(came_from, start), *_calm_labels(simulation, start)])
            way.append(world)
            on_way.add(world)
            try:
                step = calm(simulation, world)
                if step is None:
                    check_rest(simulation, world)
            except Violation as violation:
                raise Broken(violation, [*_way(came_from, start), *_calm_labels(simulation, start)]) from violation
            if step is None:
                rests.add(world)
                break
            world = step[1]
        settled.update(way)
    return len(rests)


def calm(simulation: Simulation, w: World) -> Step | None:
    """The next step when nothing else goes wrong; None at rest. The environment is slower than the leader."""
    if w.late:
        return f"late: {w.late}", simulation.arrive(w)
    if (step := simulation.leader_goes_on(w)) is not None:
        return step
    return simulation.environment_goes_on(w)


def check_rest(simulation: Simulation, w: World) -> None:
    """Judges a world in which nothing more happens."""
    status, pods = simulation.mirror.statuses[w.status], w.tail[-1]
    running = [pod for pod in pods if pod.state in "WR"]
    old = [pod for pod in pods if pod.incarnation < status.incarnation]
    culprit = status.incidents[-1].culprit.pod_uid if status.incidents else ""
    if status.incident or holds(status, names.SUSPENDING):
        raise Violation("rest is right", f"{status.phase}, in the middle of something")
    if status.phase in TERMINAL:
        wrong = running
    elif status.phase is Phase.SUSPENDED:
        wrong = list(pods)
    elif status.phase is Phase.RUNNING:
        whole = {("worker", p.rank) for p in pods if p not in old and p.state in "RS" and not p.stop}
        if w.suspend or whole | recorded(status) != set(simulation.mirror.policies[False].members()):
            raise Violation("rest is right", f"Running with pods {pods}")
        wrong = [pod for pod in old if simulation.mirror.uid(pod) != culprit or pod.state in "WR"]
    else:
        raise Violation("rest is right", f"the job stays {status.phase}")
    if wrong:
        raise Violation("rest is right", f"{status.phase}, and these are left: {wrong}")


def _way(came_from: dict[World, tuple[World, str] | None], world: World) -> list[str]:
    labels: list[str] = []
    while (origin := came_from[world]) is not None:
        world, label = origin
        labels.append(label)
    return labels[::-1]


def _calm_labels(simulation: Simulation, world: World, limit: int = 60) -> list[str]:
    labels = ["--- from here on nothing else goes wrong ---"]
    try:
        while len(labels) < limit and (step := calm(simulation, world)) is not None:
            label, world = step
            labels.append(f"{label}  [{simulation.mirror.statuses[world.status].phase}]")
    except Violation as violation:
        labels.append(str(violation))
    return labels


SETTINGS: Final = (
    Setting("a failure, a crash", Budgets(fails=1, crashes=1, transfers=1), successes=False),
    Setting("views two events behind", Budgets(fails=1, transfers=1), successes=False, lag=2),
    Setting("failures until the budget", Budgets(fails=2), max_restarts=1),
    Setting("a deleted pod", Budgets(deletions=1, transfers=1), successes=False),
    Setting("success and a deleted pod", Budgets(deletions=1)),
    Setting("a lost node", Budgets(node_losses=1, transfers=1), successes=False),
    Setting("a lost node, by force", Budgets(node_losses=1), successes=False, force=True),
    Setting("preempted", Budgets(preemptions=1, crashes=1, transfers=1), successes=False),
    Setting("preempted, and a failure", Budgets(preemptions=1, fails=1), successes=False),
    Setting("preempted while suspending", Budgets(preemptions=1, toggles=1), successes=False),
    Setting("suspend and resume", Budgets(toggles=2, crashes=1), successes=False),
    Setting("a lost plan, no room", Budgets(plan_deletions=1, crashes=1, refusals=1), successes=False),
    Setting("exits when stopped", Budgets(fails=1), exits_on_stop=True),
    Setting("a late write", Budgets(fails=1, transfers=1), successes=False, late=True),
    Setting("a late write, suspending", Budgets(toggles=1, transfers=1), successes=False, late=True),
)
"""What the tests explore: each exhaustively within its budget, two pods, two leaders, views one event behind."""

FULL: Final = (
    Setting("two failures, two crashes", Budgets(fails=2, crashes=2, transfers=1)),
    Setting("failure, crash, lag two", Budgets(fails=1, crashes=1, transfers=1), lag=2),
    Setting("deletion, crash, two leaders", Budgets(deletions=1, crashes=1, transfers=1)),
    Setting("deletion and failure", Budgets(deletions=1, fails=1, transfers=1)),
    Setting("lost node and failure", Budgets(node_losses=1, fails=1, transfers=1)),
    Setting("lost node, by force", Budgets(node_losses=1, fails=1, crashes=1), force=True),
    Setting("preempted twice, failure, crash", Budgets(preemptions=2, fails=1, crashes=1)),
    Setting("preempted, deletion, transfer", Budgets(preemptions=1, deletions=1, transfers=1), late=True),
    Setting("suspend, resume, failure", Budgets(toggles=2, fails=1, transfers=1)),
    Setting("lost plan, no room, failure", Budgets(plan_deletions=1, crashes=1, refusals=1, fails=1)),
    Setting("exits when stopped, deletion", Budgets(fails=1, deletions=1), exits_on_stop=True),
    Setting("late writes", Budgets(fails=1, transfers=2), late=True),
    Setting("late write, deletion", Budgets(deletions=1, transfers=1), late=True),
    Setting("late write, suspend, resume", Budgets(toggles=2, transfers=1), late=True),
)
"""A night's work: the same questions with more going wrong at once."""


def main() -> int:
    """Explores and prints what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="larger budgets")
    parser.add_argument("--only", default="", help="settings whose name contains this")
    options = parser.parse_args()
    for promise, meaning in PROMISES.items():
        print(f"{promise}: {' '.join(meaning.split())}")
    found, explorer = [], Explorer()
    for setting in FULL if options.full else SETTINGS:
        if options.only in setting.name:
            found.append(explorer.explore(setting))
            print(found[-1], flush=True)
    print(f"{sum(f.states for f in found):,} states, {sum(f.transitions for f in found):,} transitions")
    return 0


if __name__ == "__main__":
    sys.exit(main())
