"""The exact answer to a small placement: an integer programme for CP-SAT that shares no code with the solver.

It prices what is documented: for a collective, the domains of a level less one; for neighbours, the pairs that a level
parts; times the axis' traffic, over the level's bandwidth.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from benchmarks.placement_instances import Instance
from meshwright.placement.nesting.layout import Axis, Layout, Pattern
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.topology.tree import Level, Topology


@dataclass(frozen=True)
class Exact:
    """What CP-SAT says."""

    proven: bool
    """Whether that is the optimum, or it is certain that there is no place."""
    cost: float | None
    """None if there is no place."""


def exact(instance: Instance, topology: Topology, seconds: float) -> Exact:
    """The cheapest place. Traffic and prices (one over bandwidth) must be whole numbers."""
    model = cp_model.CpModel()
    layout, (role,) = instance.layout, instance.gang.roles
    nodes = instance.snapshot.nodes
    sits = {(p, node.name): model.new_bool_var("") for p in range(layout.pods) for node in nodes}
    for p in range(layout.pods):
        model.add_exactly_one(sits[p, node.name] for node in nodes)
    for node in nodes:
        room = instance.snapshot.free[node.name].gpus // role.resources.gpus
        model.add(sum(sits[p, node.name] for p in range(layout.pods)) <= room)
    terms: list[cp_model.LinearExprT] = []
    for depth, level in enumerate(topology.levels):
        inside = [
            [_in_domain(model, sits, p, members) for p in range(layout.pods)]
            for members in _domains(topology.levels[: depth + 1], nodes)
        ]
        terms += _level_terms(model, layout, level, inside)
    model.minimize(sum(terms))
    return _solved(model, seconds)


def _solved(model: cp_model.CpModel, seconds: float) -> Exact:
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Exact(True, None)
    return Exact(status == cp_model.OPTIMAL, solver.objective_value if status != cp_model.UNKNOWN else None)


def _domains(levels: Sequence[Level], nodes: Sequence[NodeCapacity]) -> list[list[str]]:
    found: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node in nodes:
        found[tuple(node.labels[level.key] for level in levels)].append(node.name)
    return list(found.values())


def _in_domain(
    model: cp_model.CpModel, sits: Mapping[tuple[int, str], cp_model.IntVar], pod: int, members: Sequence[str]
) -> cp_model.IntVar:
    there = model.new_bool_var("")
    model.add(there == sum(sits[pod, node] for node in members))
    return there


def _level_terms(
    model: cp_model.CpModel, layout: Layout, level: Level, inside: Sequence[Sequence[cp_model.IntVar]]
) -> Iterator[cp_model.LinearExprT]:
    """What is paid for crossing one level; constraints of that level are added to the model.

    Args:
        model: the programme.
        layout: the grid.
        level: the level.
        inside: by domain and pod, whether the pod sits in the domain.
    """
    for axis in layout.axes:
        held = any(axis.name in c.axes and c.level == level.name for c in layout.constraints)
        for group in _groups(layout, axis):
            used = [_any(model, [there[p] for p in group]) for there in inside]
            if held:
                model.add(sum(used) == 1)
            weight = round(axis.traffic / level.bandwidth)
            if axis.pattern is Pattern.COLLECTIVE:
                yield weight * (sum(used) - 1)
                continue
            for one, next_one in itertools.pairwise(group):
                parted = model.new_bool_var("")
                for there in inside:
                    model.add(parted >= there[one] - there[next_one])
                yield weight * parted


def _any(model: cp_model.CpModel, variables: Sequence[cp_model.IntVar]) -> cp_model.IntVar:
    found = model.new_bool_var("")
    model.add_max_equality(found, variables)
    return found


def _groups(layout: Layout, along: Axis) -> list[list[int]]:
    """Pods that differ in one axis only; pods are numbered row-major."""
    groups: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for pod, place in enumerate(itertools.product(*(range(axis.size) for axis in layout.axes))):
        others = tuple(x for axis, x in zip(layout.axes, place, strict=True) if axis is not along)
        groups[others].append(pod)
    return list(groups.values())
