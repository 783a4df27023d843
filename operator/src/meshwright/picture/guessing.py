"""Which labels say where nodes stand, for who was not told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from meshwright.placement.supply.nodes import NodeCapacity
from meshwright.placement.topology.presets import PRESETS
from meshwright.placement.topology.tree import Topology


def guess(nodes: Sequence[NodeCapacity], presets: Mapping[str, Topology] = PRESETS) -> str:
    """Name of the preset with the most levels whose labels most nodes with GPUs have; empty if none fits.

    Regions and zones are on nodes of every cloud and say little, so they are taken only where nothing else fits.
    """
    with_gpus = [node for node in nodes if node.allocatable.gpus] or list(nodes)
    best, most = "", 0
    for name, topology in presets.items():
        keys = topology.keys
        holders = sum(all(key in node.labels for key in keys) for node in with_gpus)
        levels = 1 if name == "kubernetes" else len(topology.levels) * 2
        if 2 * holders > len(with_gpus) and levels > most:
            best, most = name, levels
    return best
