"""Where the pods of one gang go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from meshwright.placement.model import GangRequest, Member, Placed, Refused, Snapshot
from meshwright.placement.reasons import refusal
from meshwright.placement.supply.eligibility import NodeRules
from meshwright.placement.supply.resources import Resources


class Solver(Protocol):
    """Finds a place for a whole gang, or says why there is none. Equal input gives equal output."""

    def place(self, gang: GangRequest, snapshot: Snapshot) -> Placed | None:
        """A node for every pod of the gang within what the snapshot has free; None if there is no such place."""
        ...

    def why_not(self, gang: GangRequest, snapshot: Snapshot) -> Refused:
        """What is missing, for a gang that was just given no place."""
        ...


@dataclass(frozen=True)
class Kind:
    """Pods of a gang that are alike."""

    resources: Resources
    members: tuple[Member, ...]
    nodes: tuple[str, ...]
    """The nodes that take them, best first."""


class FirstFit:
    """Fills one node after the other in the order of their names, so that consecutive ranks sit together.

    Pods keep the nodes that the gang had before, where these still take them. Nodes to avoid come last, and pods
    without GPUs take nodes without GPUs first. For pods that are all alike it finds a place whenever there is one. A
    gang of several kinds is tried in several orders; it may still miss a place that an exhaustive search would find.
    """

    def place(self, gang: GangRequest, snapshot: Snapshot) -> Placed | None:
        """A node for every pod of the gang, or None."""
        kinds = kinds_of(gang, snapshot)
        free = snapshot.free_for(gang)
        keep = {member: node for member, node in gang.prefer.items() if node not in gang.avoid}
        for order, kept in _tries(kinds, keep):
            nodes = _pack(order, free, kept)
            if nodes is not None:
                return Placed(nodes)
        return None

    def why_not(self, gang: GangRequest, snapshot: Snapshot) -> Refused:
        """Room and need, counted."""
        return refusal(gang, snapshot)


def kinds_of(gang: GangRequest, snapshot: Snapshot) -> tuple[Kind, ...]:
    """The kinds of pods in a gang, in rank order."""
    alike: dict[tuple[Resources, NodeRules, str, str], list[Member]] = {}
    for role in gang.roles:
        if role.replicas:
            alike.setdefault((role.resources, role.rules, role.near, role.spread), []).extend(role.members())
    return tuple(
        Kind(resources, tuple(members), _candidates(resources, rules, gang.avoid, snapshot))
        for (resources, rules, _, _), members in alike.items()
    )


def _candidates(resources: Resources, rules: NodeRules, avoid: frozenset[str], snapshot: Snapshot) -> tuple[str, ...]:
    takers = [node for node in snapshot.takers(rules) if node.name not in snapshot.held]
    if avoid or not resources.gpus:
        takers.sort(key=lambda node: (node.name in avoid, not resources.gpus and node.allocatable.gpus > 0))
    return tuple(node.name for node in takers)


def _tries(kinds: tuple[Kind, ...], keep: Mapping[Member, str]) -> list[tuple[tuple[Kind, ...], Mapping[Member, str]]]:
    """Orders in which to place the kinds, most promising first; one is enough where all pods are alike."""
    if len(kinds) < 2:
        return [(kinds, keep)]
    largest = tuple(sorted(kinds, key=lambda k: (-k.resources.gpus, -k.resources.cpu, -k.resources.memory)))
    choosiest = tuple(sorted(largest, key=lambda k: len(k.nodes)))
    return [(order, kept) for kept in ([keep, {}] if keep else [{}]) for order in (largest, choosiest, kinds)]


def _pack(
    kinds: tuple[Kind, ...], free: Mapping[str, Resources], keep: Mapping[Member, str]
) -> dict[Member, str] | None:
    """Places kind after kind; None as soon as a pod is left over."""
    left = dict(free)
    nodes: dict[Member, str] = {}
    # Kept places first, for all kinds, or a pod without one could take another's.
    for kind in kinds if keep else ():
        takes = frozenset(kind.nodes)
        for member in kind.members:
            node = keep.get(member, "")
            if node in takes and kind.resources.fits(left[node]):
                nodes[member] = node
                left[node] -= kind.resources
    for kind in kinds:
        waiting = [member for member in kind.members if member not in nodes]
        done = 0
        for node in kind.nodes:
            count = kind.resources.times_in(left[node], len(waiting) - done)
            if count:
                nodes.update((member, node) for member in waiting[done : done + count])
                left[node] -= kind.resources * count
                done += count
                if done == len(waiting):
                    break
        if done < len(waiting):
            return None
    return nodes
