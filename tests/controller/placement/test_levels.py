"""Levels of one's own, from text and from Kueue's objects."""

from __future__ import annotations

import pytest

from meshwright.placement.errors import InvalidTopology
from meshwright.placement.topology.levels import kueue_levels, own_levels, with_bandwidth
from meshwright.placement.topology.presets import PRESETS
from meshwright.placement.topology.tree import HOSTNAME


def names(*texts: str) -> list[tuple[str, str]]:
    return [(level.name, level.key) for level in own_levels(texts).levels]


def test_levels_have_the_names_they_are_given_or_those_of_their_labels() -> None:
    assert names("hall=example.com/hall", "example.com/rack", "cloud.google.com/gce-topology-block") == [
        ("hall", "example.com/hall"),
        ("rack", "example.com/rack"),
        ("block", "cloud.google.com/gce-topology-block"),
        ("node", HOSTNAME),
    ]
    assert names("rack", f"box={HOSTNAME}") == [("rack", "rack"), ("box", HOSTNAME)]


def test_tiers_halve_and_nvlink_is_fast_as_in_the_presets() -> None:
    for preset in ("topograph", "nvlink", "gke", "coreweave"):
        labels = [level.key for level in PRESETS[preset].levels]
        assert [level.bandwidth for level in own_levels(labels).levels] == [
            level.bandwidth for level in PRESETS[preset].levels
        ]


def test_bandwidths_are_set_by_name() -> None:
    levels = with_bandwidth(own_levels(["spine=a/s", "leaf=a/l"]), ["leaf=900", "node = 7200.5"]).levels
    assert [level.bandwidth for level in levels] == [200.0, 900.0, 7200.5]


@pytest.mark.parametrize(
    ("levels", "bandwidth", "says"),
    [
        (["leaf=not a label"], [], "'not a label' is no label"),
        (["=a/b"], [], "has no name"),
        (["leaf="], [], "'' is no label"),
        (["leaf=a/l", "leaf=b/l"], [], "the name 'leaf' appears twice"),
        (["x=a/l", "y=a/l"], [], "the key 'a/l' appears twice"),
        ([HOSTNAME, "leaf=a/l"], [], "put it last"),
        ([f"l{i}" for i in range(17)], [], "17 are given; at most 16"),
        (["leaf=a/l"], ["rack=3"], "no level 'rack'; levels are leaf, node"),
        (["leaf=a/l"], ["leaf=0"], "no number of GB/s above 0"),
        (["leaf=a/l"], ["leaf=fast"], "'fast'"),
        (["leaf=a/l"], ["leaf=inf"], "'inf'"),
        (["leaf=a/l"], ["leaf=nan"], "'nan'"),
    ],
)
def test_nonsense_is_refused_by_name(levels: list[str], bandwidth: list[str], says: str) -> None:
    with pytest.raises(InvalidTopology, match=says):
        with_bandwidth(own_levels(levels), bandwidth)


def test_kueue_names_labels_only() -> None:
    spec = {"levels": [{"nodeLabel": "cloud.provider.com/topology-block"}, {"nodeLabel": HOSTNAME}]}
    assert [level.name for level in kueue_levels({"spec": spec}).levels] == ["topology-block", "node"]
    for levels in ([], [{}], [{"nodeLabel": ""}], ["leaf"]):
        with pytest.raises(InvalidTopology):
            kueue_levels({"spec": {"levels": levels}})
    with pytest.raises(InvalidTopology):
        kueue_levels({})
