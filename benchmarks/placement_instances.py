"""Random clusters and gangs for placement: small enough for an exact answer, and hard enough that order matters."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, datetime

from meshwright.placement.model import GangRequest, RoleRequest, Snapshot
from meshwright.placement.nesting.layout import Axis, Layout, Pattern, Within
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.supply.resources import Resources
from meshwright.placement.topology.tree import HOSTNAME, Level, Topology

GPUS = 8
TOPOLOGY = Topology((Level("spine", "spine", 0.25), Level("leaf", "leaf", 0.5), Level("node", HOSTNAME, 1.0)))
_SHAPES = ((2, 2), (4, 2), (2, 4), (3, 2), (2, 3), (2, 2, 2), (3, 3), (5, 2), (3, 4), (4, 3), (6, 2), (2, 3, 2), (8,))


@dataclass(frozen=True)
class Instance:
    """A gang that wants a place in a cluster."""

    snapshot: Snapshot
    gang: GangRequest

    @property
    def layout(self) -> Layout:
        """The gang's grid of pods."""
        assert self.gang.layout is not None
        return self.gang.layout


def small(seed: int) -> Instance:
    """A gang of 4 to 12 pods on 6 to 14 half-busy nodes whose names say nothing of where they stand."""
    chance = random.Random(seed)
    layout = _layout(chance)
    gpus = chance.choice([2, 4, 8])
    free: list[int] = []
    wanted = layout.pods * chance.choice([1.0, 1.3, 1.6])
    while sum(f // gpus for f in free) < wanted and len(free) < 14:
        free.append(chance.choice([0, gpus, gpus, 2 * gpus, GPUS]))
    free += [chance.choice([0, gpus, GPUS]) for _ in range(chance.randint(0, 3))]
    names = [f"n{i:02}" for i in range(len(free))]
    chance.shuffle(names)
    leaves = chance.randint(2, 5)
    nodes, left = [], {}
    for name, gpus_free in zip(names, free, strict=True):
        leaf = chance.randrange(leaves)
        labels = {"spine": f"s{leaf % 2}", "leaf": f"l{leaf}", HOSTNAME: name}
        nodes.append(NodeCapacity(name, Resources(gpus=GPUS), labels))
        left[name] = Resources(gpus=min(gpus_free, GPUS))
    return Instance(Snapshot(tuple(nodes), left), gang(layout, gpus))


def gang(layout: Layout, gpus: int) -> GangRequest:
    """A gang of one role."""
    role = RoleRequest("worker", layout.pods, Resources(gpus=gpus))
    return GangRequest("uid", "team", "job", (role,), datetime(2026, 1, 1, tzinfo=UTC), layout=layout)


def _layout(chance: random.Random) -> Layout:
    names = ("pipeline", "data", "tensor")
    shape = chance.choice(_SHAPES)
    axes = tuple(
        Axis(
            name,
            size,
            # Inner axes send more, as a rule and not always.
            float(chance.choice([1, 2, 4]) * 4**position if chance.random() < 0.8 else chance.randint(1, 16)),
            Pattern.NEIGHBOURS if name == "pipeline" else Pattern.COLLECTIVE,
        )
        for position, (name, size) in enumerate(zip(names[-len(shape) :], shape, strict=True))
    )
    constraints = []
    if chance.random() < 0.3:
        axis = chance.choice(axes[-1:] if chance.random() < 0.7 else axes)
        level = chance.choice(["spine", "leaf", "leaf", "node"])
        constraints.append(Within(frozenset({axis.name}), level, required=True))
    return Layout(axes, tuple(constraints))
