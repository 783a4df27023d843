"""Cost of placements against the exact optimum, on small random clusters; first fit on the same ones beside it.

    python -m benchmarks.placement_optimum [--instances N] [--seed S] [--seconds T]

Prints one JSON line per figure. Only instances with a proven optimum above 0 count; where the optimum is 0 ours must
be too. A verdict that differs from the exact one ends the run with an error.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from benchmarks.placement_exact import exact
from benchmarks.placement_instances import TOPOLOGY, Instance, small
from meshwright.placement.model import Member
from meshwright.placement.nesting.cost import Cost
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.solver import FirstFit
from meshwright.placement.topology.tree import Tree


@dataclass(frozen=True)
class Compared:
    """One instance with a proven answer."""

    seed: int
    optimum: float | None
    """None if there is no place."""
    ours: float | None
    first_fit: float | None
    """Constraints left out of account."""

    @property
    def agree(self) -> bool:
        """Whether the verdicts are equal; a cost below the optimum is a wrong one."""
        if self.optimum is None or self.ours is None:
            return self.optimum == self.ours
        return self.ours >= self.optimum - 1e-6 and (self.optimum > 0 or self.ours == 0)


def compare(seeds: Iterable[int], seconds: float = 6.0) -> Iterator[Compared]:
    """Every instance whose answer was proven."""
    for seed in seeds:
        instance = small(seed)
        answer = exact(instance, TOPOLOGY, seconds)
        if answer.proven:
            ours = TopologySolver(TOPOLOGY).place(instance.gang, instance.snapshot)
            naive = FirstFit().place(instance.gang, instance.snapshot)
            yield Compared(
                seed,
                answer.cost,
                price(instance, ours.nodes) if ours else None,
                price(instance, naive.nodes) if naive else None,
            )


def price(instance: Instance, nodes: Mapping[Member, str]) -> float:
    """What a place costs."""
    tree = Tree.of(TOPOLOGY, instance.snapshot.nodes)
    position = {node.name: i for i, node in enumerate(tree.nodes)}
    return Cost.of(tree, instance.layout).total([position[nodes["worker", p]] for p in range(instance.layout.pods)])


def figures(found: list[Compared]) -> Iterator[dict[str, object]]:
    """The lines that are printed."""
    placed = [(c.ours, c.first_fit, c.optimum) for c in found if c.ours is not None and c.optimum]
    ratios = [ours / optimum for ours, _, optimum in placed if optimum]
    naive = [first_fit / optimum for _, first_fit, optimum in placed if first_fit is not None and optimum]
    context = {
        "instances": len(ratios),
        "optimum_zero": sum(c.optimum == 0 for c in found),
        "infeasible": sum(c.optimum is None for c in found),
    }
    for name, value, goal, better in (
        ("placement_cost_vs_optimum_mean", statistics.mean(ratios), 1.02, "lower"),
        ("placement_cost_vs_optimum_worst", max(ratios), 1.10, "lower"),
        ("first_fit_cost_vs_optimum_mean", statistics.mean(naive), 1.3, "higher"),
    ):
        yield {"name": name, "value": round(value, 4), "unit": "ratio", "goal": goal, "better": better, **context}


def main() -> int:
    """Compares and prints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=int, default=300, help="random instances; those with a place count")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first instance; the others follow")
    parser.add_argument("--seconds", type=float, default=6.0, help="time for the proof of one instance")
    given = parser.parse_args()
    found = list(compare(range(given.seed, given.seed + given.instances), given.seconds))
    for line in figures(found):
        print(json.dumps(line))
    wrong = [c.seed for c in found if not c.agree]
    if wrong:
        print(f"verdicts differ from the exact ones at seeds {wrong}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
