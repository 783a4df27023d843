"""What an administrator says of the topology reaches the operator, and nothing else gets through."""

from __future__ import annotations

import json
from typing import Any

import pytest

from meshwright.placement.topology.presets import PRESETS
from meshwright.settings import KUEUE, Settings, parse
from tests.charts.rendering import CHART, helm, of_kind, render


def settings_of(topology: dict[str, Any]) -> Settings:
    deployment = of_kind(render({"topology": topology}), "Deployment")[0]
    return parse(deployment["spec"]["template"]["spec"]["containers"][0]["args"], {"KUBECONFIG": "none"})


def test_levels_of_ones_own_arrive_with_their_bandwidths() -> None:
    levels = [
        {"name": "hall", "label": "example.com/hall"},
        {"label": "example.com/rack", "bandwidthGBps": 1_000_000},
        {"label": "plain"},
    ]
    found = settings_of({"levels": levels, "bandwidthGBps": {"hall": 12.5}}).levels
    assert found is not None
    assert [(level.name, level.key, level.bandwidth) for level in found.levels[:-1]] == [
        ("hall", "example.com/hall", 12.5),
        ("rack", "example.com/rack", 1_000_000.0),
        ("plain", "plain", 400.0),
    ]


def test_presets_are_those_of_the_operator_and_their_bandwidths_can_be_set() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(schema["properties"]["topology"]["properties"]["preset"]["enum"]) == {"", *PRESETS, KUEUE}
    found = settings_of({"preset": "topograph", "bandwidthGBps": {"leaf": 300}}).levels
    assert found is not None
    assert {level.name: level.bandwidth for level in found.levels}["leaf"] == 300


def test_kueues_objects_may_be_read_exactly_where_they_are_used() -> None:
    def topology_rights(topology: dict[str, Any]) -> list[Any]:
        roles = of_kind(render({"topology": topology}), "ClusterRole")
        return [r for role in roles for r in role["rules"] if "kueue.x-k8s.io" in r["apiGroups"]]

    used = settings_of({"preset": "kueue", "kueueTopology": "racks"})
    assert (used.levels, used.kueue_topology) == (None, "racks")
    assert topology_rights({"preset": "kueue"}) == [
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["topologies"], "verbs": ["get", "list"]}
    ]
    assert topology_rights({"preset": "gke"}) == []


@pytest.mark.parametrize(
    "topology",
    [
        {"preset": "infiniband"},
        {"levels": [{"name": "leaf"}]},
        {"levels": [{"label": "a=b"}]},
        {"levels": [{"label": "a,b"}]},
        {"bandwidthGBps": {"leaf": 0}},
        {"labels": []},
    ],
    ids=str,
)
def test_nonsense_is_refused_by_the_chart(topology: dict[str, Any]) -> None:
    assert helm("template", "x", str(CHART), values={"topology": topology}).returncode != 0
