"""One run: a life under an operator, its end, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from tests.chaos.admin import Refused
from tests.chaos.arena import Slot, Stage
from tests.chaos.judge import Violation, judge
from tests.chaos.life import Life
from tests.chaos.observer import TooLate


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a run ended.

    Attributes:
        label: Which run it was.
        violations: What was wrong; empty if nothing.
        counted: Mutating calls of the operator.
        starts: How often the operator was started.
        seconds: How long it took.
        note: What was done to the operator.
        log: The operator's log.
        points: At how many points of a sweep it was killed.
    """

    label: str
    violations: tuple[Violation, ...]
    counted: int
    starts: int
    seconds: float
    note: str = ""
    log: Path | None = None
    points: int = 0

    def __str__(self) -> str:
        head = f"{self.label}: {self.note or 'undisturbed'}; {self.counted} calls, {self.seconds:.1f} s"
        return "\n".join([head, *(f"    {violation}" for violation in self.violations)])

    def tail(self, lines: int = 25) -> str:
        """The end of the operator's log."""
        if self.log is None or not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


async def see_through(
    slot: Slot,
    life: Life,
    stages: tuple[Stage, ...],
    act: Callable[[], Awaitable[None]],
    *,
    undisturbed: bool = False,
    uninstalled: bool = False,
) -> tuple[Violation, ...]:
    """Lives a life, deletes what it was about, and judges.

    Args:
        slot: Where.
        life: Whose.
        stages: The operators that run.
        act: What happens until the deletion.
        undisturbed: Nothing interferes with the operator: its writes are counted, too.
        uninstalled: The operator is gone before the job is deleted; whatever is left is the garbage collector's.
    """
    problems: list[str] = []
    leftovers: list[str] = []
    try:
        await act()
        if uninstalled:
            for stage in stages:
                await stage.operator.end()
        await life.delete()
        await life.gone()
    except (TooLate, Refused, IndexError) as error:
        states = [stage.operator.process.explain() for stage in stages if stage.operator.process]
        pods = {name: pod.get("status", {}).get("phase") for name, pod in life.scene.pods.items()}
        seen = f"pods {pods}, status {dict(life.status) if life.uid else {}}"
        problems.append(f"{error or repr(error)}; operators {states}, {seen}")
        await life.delete()
    leftovers = await life.leftovers()
    facts = slot.facts(life, *stages, problems=problems, leftovers=leftovers, undisturbed=undisturbed)
    return tuple(judge(facts))


def elapsed(since: float) -> float:
    """Seconds since a moment of the monotonic clock."""
    return time.monotonic() - since
