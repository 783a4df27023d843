"""Gangs too large for many tries: whatever is tried, first fit in the order of the tree must not do better."""

from __future__ import annotations

import random

import pytest

from benchmarks.placement_instances import GPUS, TOPOLOGY, gang
from benchmarks.placement_speed import cluster
from meshwright.placement.model import Placed
from meshwright.placement.nesting.cost import Cost
from meshwright.placement.nesting.layout import Axis, Layout, Pattern
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.solver import FirstFit
from meshwright.placement.topology.tree import Tree

ROOM = cluster(2000, random.Random(5))
TREE = Tree.of(TOPOLOGY, ROOM.nodes)


@pytest.mark.parametrize("gpus", [GPUS // 2, GPUS])
@pytest.mark.parametrize(
    ("pipeline", "data", "tensor"), [(4, 128, 1), (8, 64, 1), (2, 256, 1), (4, 100, 1), (4, 64, 2)]
)
def test_a_large_gang_is_placed_no_worse_than_by_first_fit(pipeline: int, data: int, tensor: int, gpus: int) -> None:
    axes = (Axis("pipeline", pipeline, 1.0, Pattern.NEIGHBOURS), Axis("data", data, 4.0), Axis("tensor", tensor, 64.0))
    request = gang(Layout(axes, ()), gpus)
    cost = Cost.of(TREE, request.layout)

    def price(placed: Placed | None) -> float:
        assert placed is not None
        return cost.total([TREE.position[placed.nodes[member]] for member in sorted(placed.nodes)])

    assert price(TopologySolver(TOPOLOGY).place(request, ROOM)) <= price(FirstFit().place(request, ROOM))
