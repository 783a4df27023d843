"""Wishes on six known fabrics, some of them irregular: valid by the nodes' labels alone, whatever is busy."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from meshwright.placement.model import Reservation
from meshwright.placement.nesting.layout import Axis, Layout
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.topology.tree import Level, Topology
from tests.controller.placement.clusters import a_few, a_gang, a_node, a_role, a_snapshot, amount

FABRICS = json.loads((Path(__file__).parent / "vectors" / "fabrics.json").read_text())["fabrics"]
KEYS = ("fabric/tier-2", "fabric/tier-1", "fabric/tier-0", "accelerator/domain")


@pytest.mark.parametrize("fabric", FABRICS)
@settings(a_few, max_examples=60)
@given(st.integers(2, 6), st.integers(1, 3), st.booleans(), st.booleans(), st.booleans(), st.integers(0, 3), st.data())
def test_wishes_hold_on_known_fabrics(
    fabric: str, data: int, tensor: int, spread: bool, balanced: bool, alone: bool, depth: int, drawn: st.DataObject
) -> None:
    raw = FABRICS[fabric]
    keys = [key for key in KEYS if all(key in node["labels"] for node in raw)]
    topology = Topology(tuple(Level(key, key, 2.0**i) for i, key in enumerate(keys)))
    level = keys[depth % len(keys)]
    held = drawn.draw(st.sets(st.integers(0, len(raw) - 1), max_size=len(raw) // 3))
    nodes = [a_node(node["name"], gpus=1, labels=node["labels"]) for node in raw]
    others = Reservation("other", 1, {("worker", i): raw[i]["name"] for i in held}, {"worker": amount(gpus=1)})
    layout = Layout(
        (Axis("data", data, 2.0), Axis("tensor", tensor, 32.0)),
        exclusive=level if alone else "",
        spread=level if spread else "",
        balanced=balanced,
    )
    gang = replace(a_gang("u", a_role(layout.pods, gpus=1)), layout=layout)
    placed = TopologySolver(topology).place(gang, a_snapshot(nodes, reservations=[others]))

    upto = keys[: keys.index(level) + 1]
    domain = {node["name"]: tuple(node["labels"][key] for key in upto) for node in raw}
    closed = {domain[raw[i]["name"]] for i in held} if alone else set()
    free = Counter(domain[n["name"]] for i, n in enumerate(raw) if i not in held and domain[n["name"]] not in closed)
    if placed is None:
        whole = sum(count // tensor for count in free.values()) if spread else free.total() // tensor
        assert balanced or whole < data
        return
    where = [placed.nodes["worker", i] for i in range(layout.pods)]
    assert len(set(where)) == len(where)
    assert not set(where) & {raw[i]["name"] for i in held}
    assert not {domain[name] for name in where} & closed
    if spread:
        replicas = [{domain[name] for name in where[i : i + tensor]} for i in range(0, layout.pods, tensor)]
        assert all(len(domains) == 1 for domains in replicas)
    if spread and not balanced:
        counts = Counter(domains.pop() for domains in replicas)
        # Whoever could take one more without being the fullest has one already.
        assert all(min(count // tensor, max(counts.values()) - 1) <= counts[name] for name, count in free.items())
    if balanced:
        for last in range(1, len(keys) + 1):
            paths = {node["name"]: tuple(node["labels"][key] for key in keys[:last]) for node in raw}
            assert len(set(Counter(paths[name] for name in where).values())) == 1
