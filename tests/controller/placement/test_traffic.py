"""Traffic along the axes: against formulas written out, and in the order that everybody nests them in."""

from __future__ import annotations

import pytest

from meshwright.placement.nesting.layout import Pattern
from meshwright.placement.nesting.traffic import Shape, mesh_axes

MESH = [("pipeline", 4), ("data", 4), ("shard", 2), ("context", 2), ("tensor", 8)]


def test_bytes_are_those_of_the_published_formulas() -> None:
    shape = Shape(layers=4, hidden=16, tokens=64)
    sent = {axis.name: axis.traffic for axis in mesh_axes([("pipeline", 2), ("data", 2), ("tensor", 2)], shape)}
    # 2 layers a stage, 4 all-reduces each, of 64 x 16 values of 2 bytes, of which a ring of two passes on all.
    assert sent["tensor"] == 2 * 4 * 64 * 16 * 2
    # One activation and one gradient, halved by the tensor group.
    assert sent["pipeline"] == 2 * 64 * 16 * 2 / 2
    # 12 h^2 weights a layer, 2 layers, halved by the tensor group, all-reduced by two.
    assert sent["data"] == 12 * 16**2 * 2 * 2 / 2


def test_tensor_talks_most_and_stages_are_neighbours() -> None:
    axes = {axis.name: axis for axis in mesh_axes(MESH)}
    assert max(axes.values(), key=lambda axis: axis.traffic).name == "tensor"
    assert [axis.name for axis in axes.values() if axis.pattern is Pattern.NEIGHBOURS] == ["pipeline"]


@pytest.mark.parametrize("name", ["data", "shard", "context", "tensor"])
def test_an_axis_of_one_sends_nothing(name: str) -> None:
    assert next(axis.traffic for axis in mesh_axes([(name, 1)]) if axis.name == name) == 0
