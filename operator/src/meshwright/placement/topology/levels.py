"""Topologies of one's own: levels given as text, or read from a Kueue `Topology`, and bandwidths that were measured."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from meshwright.placement.errors import InvalidTopology
from meshwright.placement.topology.presets import ADAPTERS, NVLINK, PRESETS
from meshwright.placement.topology.tree import HOSTNAME, NODE, Level, Topology

MOST_LEVELS: Final = 16
_LABEL: Final = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
)
_EXAMPLE: Final = "spine=example.com/spine,leaf=example.com/leaf"
_NVLINK_KEYS: Final = frozenset(
    level.key for preset in PRESETS.values() for level in preset.levels if level.name == "nvlink"
)
_NAMES: Final = {level.key: level.name for preset in PRESETS.values() for level in preset.levels}


def own_levels(texts: Sequence[str]) -> Topology:
    """Levels, farthest first, each written `name=label` or just `label`.

    A level that is given no name has that of the preset which knows its label, else the label's own without its prefix.
    Each tier has half the bandwidth of the next one; below a label that names NVLink domains there is NVLink.

    Raises:
        InvalidTopology: a text is no label, levels are named alike, or hosts are not the last level.
    """
    if len(texts) > MOST_LEVELS:
        raise InvalidTopology(f"levels: {len(texts)} are given; at most {MOST_LEVELS} can be used")
    named = [_named(text) for text in texts]
    inner = [key for _, key in named if key != HOSTNAME]
    nvlink = bool(inner) and inner[-1] in _NVLINK_KEYS
    tiers = len(inner) - nvlink
    levels = [
        Level(name, key, ADAPTERS / 2 ** max(tiers - 1 - i, 0))
        for i, (name, key) in enumerate(named)
        if key != HOSTNAME
    ]
    host = next((name for name, key in named if key == HOSTNAME), NODE)
    if any(key == HOSTNAME for _, key in named[:-1]):
        raise InvalidTopology(f"levels: {HOSTNAME} names single nodes; put it last or leave it out")
    return Topology((*levels, Level(host, HOSTNAME, NVLINK if nvlink else ADAPTERS)))


def with_bandwidth(topology: Topology, texts: Iterable[str]) -> Topology:
    """The same levels, some with another bandwidth, each written `level=GB/s`.

    Raises:
        InvalidTopology: there is no such level, or no such number.
    """
    given: dict[str, float] = {}
    known = {level.name for level in topology.levels}
    for text in texts:
        name, _, number = (part.strip() for part in text.partition("="))
        if name not in known:
            there = ", ".join(level.name for level in topology.levels) or "none, since no topology is set"
            raise InvalidTopology(f"bandwidth {text!r}: there is no level {name!r}; levels are {there}")
        given[name] = _positive(number, text)
    return Topology(
        tuple(replace(level, bandwidth=given.get(level.name, level.bandwidth)) for level in topology.levels)
    )


def kueue_levels(topology: Mapping[str, Any]) -> Topology:
    """The levels of a Kueue `Topology` object.

    Raises:
        InvalidTopology: it has none that can be used.
    """
    levels = (topology.get("spec") or {}).get("levels") or ()
    labels = [str(level.get("nodeLabel") or "") for level in levels if isinstance(level, Mapping)]
    if not labels:
        raise InvalidTopology("spec.levels is empty")
    return own_levels(labels)


def _named(text: str) -> tuple[str, str]:
    name, equals, key = (part.strip() for part in text.partition("="))
    key = key if equals else name
    if not _LABEL.fullmatch(key) or len(key.rpartition("/")[0]) > 253:
        raise InvalidTopology(f"levels: {key!r} is no label of nodes; write for example {_EXAMPLE}")
    if equals and not name:
        raise InvalidTopology(f"levels: {text!r} has no name before the =; write for example {_EXAMPLE}")
    return (name if equals else NODE if key == HOSTNAME else _NAMES.get(key, key.rpartition("/")[2])), key


def _positive(text: str, whole: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise InvalidTopology(f"bandwidth {whole!r}: {text!r} is no number of GB/s above 0; write for example leaf=400")
    return number
