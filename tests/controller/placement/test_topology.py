"""The tree of domains: whole paths, nodes that have no place in it, levels that make no tree."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from meshwright.placement.errors import InvalidTopology
from meshwright.placement.topology.presets import PRESETS
from meshwright.placement.topology.tree import HOSTNAME, Level, Topology, Tree
from tests.controller.placement.clusters import a_node

FABRICS = json.loads((Path(__file__).parent / "vectors" / "fabrics.json").read_text())["fabrics"]
TWO = Topology((Level("spine", "s"), Level("leaf", "l")))


def test_equal_leaf_names_under_two_spines_are_two_domains() -> None:
    tree = Tree.of(TWO, [a_node(f"n{i}", labels={"s": s, "l": "l1"}) for i, s in enumerate("aab")])
    assert [[tree.path(level, d) for d in range(tree.size(level))] for level in (1, 2, 3)] == [
        ["a", "b"],
        ["a/l1", "b/l1"],
        ["a/l1/n0", "a/l1/n1", "b/l1/n2"],
    ]


def test_a_node_without_a_label_is_left_out_and_counted_by_the_first_that_it_lacks() -> None:
    nodes = [a_node("n0", labels={"s": "a", "l": "b"}), a_node("n1", labels={"l": "b"}), a_node("n2")]
    tree = Tree.of(TWO, [*nodes, a_node("n3", labels={"s": "a"})])
    assert [node.name for node in tree.nodes] == ["n0"]
    assert tree.unlabelled == {"s": 2, "l": 1}


def test_a_host_may_have_the_name_of_a_rack() -> None:
    topology = Topology((Level("rack", "r"), Level("host", HOSTNAME)))
    tree = Tree.of(topology, [a_node("n0", labels={"r": "x", HOSTNAME: "x"})])
    assert [tree.path(level, 0) for level in (1, 2)] == ["x", "x/n0"]
    assert [level.name for level in tree.levels] == ["cluster", "rack", "host"]


def test_levels_are_found_by_name_and_by_label() -> None:
    tree = Tree.of(TWO, [])
    assert [tree.level(name) for name in ("spine", "l", "node", "cluster", "rack")] == [1, 2, 3, None, None]


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        ((Level("a", "k"), Level("a", "m")), "name 'a' appears twice"),
        ((Level("a", "k"), Level("b", "k")), "key 'k' appears twice"),
        ((Level("a", "k", 0),), "bandwidth of 'a'"),
        ((Level("node", HOSTNAME), Level("a", "k")), "put it last"),
    ],
)
def test_levels_that_are_no_tree_are_refused(levels: tuple[Level, ...], says: str) -> None:
    with pytest.raises(InvalidTopology, match=says):
        Topology(levels)


@pytest.mark.parametrize("name", FABRICS)
def test_every_fabric_is_the_tree_that_its_labels_say(name: str) -> None:
    keys = [key for key in ("fabric/tier-2", "fabric/tier-1", "fabric/tier-0") if key in FABRICS[name][0]["labels"]]
    tree = Tree.of(
        Topology(tuple(Level(key, key) for key in keys)),
        [a_node(node["name"], labels=node["labels"]) for node in FABRICS[name]],
    )
    for depth in range(1, len(keys) + 1):
        expected = defaultdict(set)
        for node in FABRICS[name]:
            expected["/".join(node["labels"][key] for key in keys[:depth])].add(node["name"])
        found = {
            tree.path(depth, d): {tree.nodes[i].name for i in tree.span(depth, d)} for d in range(tree.size(depth))
        }
        assert found == expected
        inside = [child for d in range(tree.size(depth - 1)) for child in tree.children(depth - 1, d)]
        assert inside == list(range(tree.size(depth)))


def test_presets_have_less_bandwidth_the_farther_a_level_is() -> None:
    for topology in PRESETS.values():
        bandwidths = [level.bandwidth for level in topology.levels]
        assert bandwidths == sorted(bandwidths)
