"""From a mesh of ranks to a grid of pods, and what a placement costs, against counts by hand."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from meshwright.placement.errors import InvalidLayout
from meshwright.placement.nesting.cost import Cost
from meshwright.placement.nesting.layout import Axis, Layout, Pattern, Within
from meshwright.placement.topology.tree import HOSTNAME, Level, Topology, Tree
from tests.controller.placement.clusters import a_few, a_node

MESH = (Axis("pipeline", 4, 1.0, Pattern.NEIGHBOURS), Axis("data", 4, 2.0), Axis("tensor", 8, 3.0))


@pytest.mark.parametrize(
    ("processes", "sizes", "traffic"),
    [
        (8, (4, 4, 1), (8.0, 16.0, 3.0)),
        (4, (4, 4, 2), (4.0, 8.0, 3.0)),
        (16, (4, 2, 1), (16.0, 16.0, 6.0)),
        (1, (4, 4, 8), (1.0, 2.0, 3.0)),
    ],
)
def test_axes_inside_a_pod_vanish_and_a_pod_sends_for_all_its_groups(
    processes: int, sizes: tuple[int, ...], traffic: tuple[float, ...]
) -> None:
    layout = Layout.of_mesh(MESH, processes)
    assert tuple(axis.size for axis in layout.axes) == sizes
    assert tuple(axis.traffic for axis in layout.axes) == traffic


def test_pods_that_cut_across_axes_are_one_axis_under_every_constraint() -> None:
    layout = Layout.of_mesh((*MESH[:2], Axis("tensor", 3)), 8, [Within(frozenset({"tensor"}), "leaf", True)])
    assert [(axis.name, axis.size) for axis in layout.axes] == [("pods", 6)]
    assert layout.constraints == (Within(frozenset({"pods"}), "leaf", True),)


def test_axes_that_are_no_grid_are_refused() -> None:
    with pytest.raises(InvalidLayout, match="name of its own"):
        Layout((Axis("a", 2), Axis("a", 2)))
    with pytest.raises(InvalidLayout, match="1 or more"):
        Layout((Axis("a", 0),))


@a_few
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.sampled_from(Pattern), min_size=3, max_size=3),
    st.lists(st.integers(0, 5), min_size=27, max_size=27),
)
def test_the_cost_is_what_counting_by_hand_says(sizes: list[int], patterns: list[Pattern], where: list[int]) -> None:
    topology = Topology((Level("leaf", "l", 0.5), Level("node", HOSTNAME, 2.0)))
    nodes = [a_node(f"n{i}", labels={"l": f"l{i // 2}", HOSTNAME: f"n{i}"}) for i in range(6)]
    axes = tuple(Axis(str(i), size, i + 1.0, patterns[i]) for i, size in enumerate(sizes))
    layout = Layout(axes)
    cost, expected = Cost.of(Tree.of(topology, nodes), layout), {"leaf": 0.0, "node": 0.0}
    places = list(itertools.product(*(range(size) for size in sizes)))
    spot = {place: where[i] for i, place in enumerate(places)}
    for i, axis in enumerate(axes):
        for first in (p for p in places if p[i] == 0):
            group = [spot[(*first[:i], k, *first[i + 1 :])] for k in range(axis.size)]
            for level, share in (("leaf", 2), ("node", 1)):
                domains = [node // share for node in group]
                parted = sum(a != b for a, b in itertools.pairwise(domains))
                crossings = len(set(domains)) - 1 if axis.pattern is Pattern.COLLECTIVE else parted
                expected[level] += crossings * axis.traffic
    assert cost.crossing(where[: layout.pods]) == expected
    assert cost.total(where[: layout.pods]) == expected["leaf"] / 0.5 + expected["node"] / 2.0
