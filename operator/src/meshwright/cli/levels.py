"""Which levels the commands go by: the operator's own settings if they are given, else what the labels show."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from meshwright.picture.guessing import guess
from meshwright.placement.errors import InvalidTopology
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.topology.levels import own_levels, with_bandwidth
from meshwright.placement.topology.presets import PRESETS
from meshwright.placement.topology.tree import Topology
from meshwright.settings import ENV_PREFIX, KUEUE

NODES_ONLY: Final = "none"
"""The topology without any level above the nodes."""
OWN: Final = "own levels"


@dataclass(frozen=True, slots=True)
class Chosen:
    """What was asked for."""

    name: str = ""
    levels: tuple[str, ...] = ()
    bandwidth: tuple[str, ...] = ()
    kueue: str = ""

    @property
    def from_kueue(self) -> bool:
        """Whether the levels are to be read from the cluster."""
        return self.name == KUEUE and not self.levels


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the operator's settings of these names, with its variables as defaults."""
    parser.add_argument(
        "--topology",
        default=_variable("TOPOLOGY"),
        choices=("", *PRESETS, KUEUE, NODES_ONLY),
        help="labels that say where nodes stand, as the operator has them; by default the ones that most nodes have",
    )
    for name, text in (
        ("topology-levels", "levels of your own, farthest first, as NAME=LABEL,NAME=LABEL,..."),
        ("topology-bandwidth", "what a node has for traffic that leaves its domain of a level, as LEVEL=GB/s,..."),
        ("kueue-topology", "name of the Kueue Topology to read with --topology=kueue, if there are several"),
    ):
        variable = name.upper().replace("-", "_")
        parser.add_argument(f"--{name}", default=_variable(variable), metavar="VALUE", help=text)


def chosen(arguments: argparse.Namespace) -> Chosen:
    """Reads those flags.

    Raises:
        InvalidTopology: two of them contradict each other.
    """
    if arguments.topology and arguments.topology_levels:
        raise InvalidTopology(
            "--topology and --topology-levels cannot both be given, nor their variables; leave one out"
        )
    return Chosen(
        arguments.topology,
        _parts(arguments.topology_levels),
        _parts(arguments.topology_bandwidth),
        arguments.kueue_topology,
    )


def topology_of(wanted: Chosen, nodes: Sequence[NodeCapacity], kueue: Topology | None) -> tuple[str, Topology, bool]:
    """What the topology is called, its levels, and whether it was guessed.

    Args:
        wanted: what was asked for.
        nodes: whose labels show it, if nothing was.
        kueue: the levels that were read from the cluster, if they were to be.

    Raises:
        InvalidTopology: the levels cannot be used.
    """
    if kueue is not None:
        return KUEUE, kueue, False
    if wanted.levels:
        return OWN, with_bandwidth(own_levels(wanted.levels), wanted.bandwidth), False
    name = wanted.name or guess(nodes) or NODES_ONLY
    known = Topology() if name == NODES_ONLY else PRESETS[name]
    return name, with_bandwidth(known, wanted.bandwidth), not wanted.name


def _variable(name: str) -> str:
    return os.environ.get(ENV_PREFIX + name, "")


def _parts(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
