"""Places the cases of a file and prints one JSON line for each.

    python benchmarks/placement_cases.py FILE

Each line has `id`, `fits`, `domains` (`values` along all levels, and the `count` of pods there), `nodes_considered`,
`nodes_excluded` (by cause) and `largest_that_fits` (pods, or slices where the case has slices). Nodes are counted by
the lowest level that the case has: where that is not single nodes, its domains are counted in their place. What a case
says about the expected answer is not read.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from meshwright.placement.model import GangRequest, Placed, RoleRequest, Snapshot
from meshwright.placement.nesting.layout import Axis, Layout, Within
from meshwright.placement.nesting.room import units, usable
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.supply.capacity import PodUse, snapshot
from meshwright.placement.supply.eligibility import NodeRules, Obstacle
from meshwright.placement.supply.nodes import NodeCapacity, Taint
from meshwright.placement.supply.requests import ONE_POD
from meshwright.placement.supply.resources import Resources
from meshwright.placement.topology.tree import Level, Topology, Tree

SLICES, MEMBERS = "slices", "members"
_UNLIMITED = 2**31


@dataclass(frozen=True)
class Case:
    """A case, in the terms of placement."""

    id: str
    topology: Topology
    snapshot: Snapshot
    role: RoleRequest
    layout: Layout | None
    """None if the request makes no sense: an unknown level, a slice above the request's level or without a size."""

    @classmethod
    def parse(cls, raw: Mapping[str, Any]) -> Case:
        """Reads a case."""
        topology = Topology(tuple(Level(key, key) for key in raw["levels"]))
        pool = (raw.get("pool_node_labels") or {}).items()
        nodes = [_node(n) for n in raw["nodes"] if pool <= (n.get("labels") or {}).items()]
        pods = [
            PodUse(pod["node"], Resources.parse(pod.get("requests") or {}) + ONE_POD)
            for pod in raw.get("existing_pods") or ()
            if pod.get("node") and pod.get("phase") not in ("Succeeded", "Failed")
        ]
        request = raw["request"]
        rules = NodeRules.parse(
            {"nodeSelector": request.get("node_selector"), "tolerations": request.get("tolerations")}
        )
        resources = Resources.parse(request.get("requests") or {}) + ONE_POD
        role = RoleRequest("pods", request["count"], resources, rules)
        return cls(raw["id"], topology, snapshot(nodes, pods), role, _layout(raw["levels"], request))


def _node(raw: Mapping[str, Any]) -> NodeCapacity:
    return NodeCapacity(
        name=raw["name"],
        allocatable=Resources.parse(raw.get("allocatable") or {}),
        labels=raw.get("labels") or {},
        taints=tuple(Taint(t["key"], t.get("value") or "", t["effect"]) for t in raw.get("taints") or ()),
        unschedulable=bool(raw.get("unschedulable")),
        ready=raw.get("ready", True),
    )


def _layout(levels: Sequence[str], request: Mapping[str, Any]) -> Layout | None:
    """Slices and their pods as two axes; each slice stays within its level, all of them within the request's."""
    mode, level, piece = request["mode"], request.get("level"), request.get("slice")
    within = []
    if mode != "unconstrained":
        if level is None or level not in levels:
            return None
        within.append(Within(frozenset({SLICES, MEMBERS}), level, required=mode == "required"))
    size = 1
    if piece:
        size = piece.get("size")
        known = piece.get("level") in levels
        if not size or not known or request["count"] % size:
            return None
        if within and levels.index(piece["level"]) < levels.index(level):
            return None
        within.append(Within(frozenset({MEMBERS}), piece["level"], required=True))
    return Layout((Axis(SLICES, request["count"] // size), Axis(MEMBERS, size, 2.0)), tuple(within))


def answer(case: Case) -> dict[str, Any]:
    """The line that is printed for a case."""
    placed = _place(case)
    considered, excluded = _census(case)
    return {
        "id": case.id,
        "fits": placed is not None,
        "domains": _domains(case, placed) if placed else [],
        "nodes_considered": considered,
        "nodes_excluded": dict(excluded),
        "largest_that_fits": _largest(case),
    }


def _place(case: Case) -> Placed | None:
    if case.layout is None:
        return None
    created = datetime(1970, 1, 1, tzinfo=UTC)
    gang = GangRequest("case", "default", "case", (case.role,), created, layout=case.layout)
    return TopologySolver(case.topology).place(gang, case.snapshot)


def _domains(case: Case, placed: Placed) -> list[dict[str, Any]]:
    labels = {node.name: node.labels for node in case.snapshot.nodes}
    counts = Counter(tuple(labels[node][key] for key in case.topology.keys) for node in placed.nodes.values())
    return [{"values": list(values), "count": count} for values, count in sorted(counts.items())]


def _largest(case: Case) -> int:
    """How many pods (or slices) would fit where the request wants them."""
    if case.layout is None:
        return 0
    tree = Tree.of(case.topology, case.snapshot.nodes)
    takers = {node.name for node in case.snapshot.takers(case.role.rules)}
    rooms = [
        case.role.resources.times_in(case.snapshot.free[node.name], _UNLIMITED) if node.name in takers else 0
        for node in tree.nodes
    ]
    if not rooms:
        return 0
    everything = next((c for c in case.layout.constraints if SLICES in c.axes and c.required), None)
    level = (tree.level(everything.level) or 0) if everything else 0
    pieces = [c for c in case.layout.constraints if SLICES not in c.axes]
    return max(usable(tree, rooms, units(tree, case.layout, pieces))[level]) // case.layout.axes[1].size


def _census(case: Case) -> tuple[int, Counter[str]]:
    """Counts the nodes that could matter, and of those the ones that take no pod, by cause.

    Nodes that are not ready, are cordoned or lack a level's label are no part of the topology.
    """
    verdicts: dict[tuple[str, ...], list[str | None]] = {}
    for node in Tree.of(case.topology, case.snapshot.nodes).nodes:
        if case.role.rules.obstacle(node) not in (Obstacle.NOT_READY, Obstacle.CORDONED):
            domain = tuple(node.labels[key] for key in case.topology.keys)
            verdicts.setdefault(domain, []).append(_cause(case, node))
    excluded = Counter(Counter(causes).most_common(1)[0][0] for causes in verdicts.values() if all(causes))
    return len(verdicts), Counter({cause: n for cause, n in excluded.items() if cause})


def _cause(case: Case, node: NodeCapacity) -> str | None:
    rules = case.role.rules
    for taint in node.taints:
        tolerated = any(toleration.tolerates(taint) for toleration in rules.tolerations)
        if taint.effect in ("NoSchedule", "NoExecute") and not tolerated:
            return f"taint {taint.key}={taint.value}:{taint.effect}"
    if rules.obstacle(node):
        return "nodeSelector"
    short = case.role.resources.short_of(case.snapshot.free[node.name])
    return f"resource {short[0]}" if short else None


def main(argv: Sequence[str]) -> int:
    """Prints the answers to a file of cases."""
    if len(argv) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    for raw in json.loads(Path(argv[0]).read_text())["cases"]:
        print(json.dumps(answer(Case.parse(raw))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
