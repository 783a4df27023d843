"""The values that the gang queue and the solver speak in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from meshwright.placement.nesting.layout import Layout
from meshwright.placement.nesting.seating import Member, Seating
from meshwright.placement.queueing.claims import NO_CLAIM, Claim
from meshwright.placement.supply.eligibility import ANYWHERE, NodeRules, Obstacle
from meshwright.placement.supply.nodes import NodeCapacity, Taint
from meshwright.placement.supply.resources import NOTHING, Resources

__all__ = [
    "GangRequest",
    "Member",
    "NodeCapacity",
    "Placed",
    "Refused",
    "Reservation",
    "Resources",
    "RoleRequest",
    "Snapshot",
    "Taint",
]


@dataclass(frozen=True, slots=True)
class RoleRequest:
    """What the pods of one role need; a gang of any size is a few of these."""

    role: str
    replicas: int
    resources: Resources
    """Of one pod."""
    rules: NodeRules = ANYWHERE
    near: str = ""
    """Role whose pods these are placed close to."""
    spread: str = ""
    """Topology level over whose domains these pods are dealt out evenly."""
    claim: Claim = NO_CLAIM
    """What one pod counts against the quotas of its namespace."""

    def members(self) -> Iterator[Member]:
        """Every pod of the role, by index."""
        return ((self.role, index) for index in range(self.replicas))


@dataclass(frozen=True)
class GangRequest:
    """A gang that wants to be placed, whole or not at all."""

    job_uid: str
    namespace: str
    name: str
    roles: tuple[RoleRequest, ...]
    """In rank order; a role without pods asks for nothing."""
    created: datetime
    priority: int = 0
    avoid: frozenset[str] = frozenset()
    """Nodes that are used only if nothing else will do."""
    prefer: Mapping[Member, str] = field(default_factory=dict)
    """The gang's own places of before, which it keeps where it can: it is being restarted, not started."""
    layout: Layout | None = None
    """What it wants of the topology. The grid is that of the role that has as many pods, or of all pods in rank order.
    None: any place is as good as another."""
    preempts: bool = False
    """Whether gangs of lower priority must end for it if it fits in no other way."""

    @property
    def size(self) -> int:
        """Pods in the gang."""
        return sum(role.replicas for role in self.roles)


@dataclass(frozen=True)
class Placed:
    """A node for every pod of the gang."""

    nodes: Mapping[Member, str]
    seating: Seating | None = field(default=None, compare=False, repr=False)
    """Where that is in the topology; None if it was placed without one."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Why the gang has no place now."""

    reason: str
    """One of the reasons of `meshwright_api.names`."""
    message: str
    """Counts and what would help; never the name of a node or of another job."""


@dataclass(frozen=True)
class Reservation:
    """The places of a gang whose plan is committed; they are its own until the job ends or gives them back."""

    job_uid: str
    incarnation: int
    nodes: Mapping[Member, str]
    requests: Mapping[str, Resources]
    """Requests of a pod, by role."""
    exclusive: str = ""
    """Topology level whose domains the gang shares with no other."""


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What nodes say to pods with certain rules."""

    takers: tuple[NodeCapacity, ...]
    obstacles: Counter[Obstacle]


@dataclass(frozen=True)
class Snapshot:
    """Every node, and what is left of it, at one moment."""

    nodes: tuple[NodeCapacity, ...]
    free: Mapping[str, Resources]
    """By node: allocatable, less what bound pods hold and what is reserved for pods that are not bound yet."""
    own: Mapping[str, Mapping[str, Resources]] = field(default_factory=dict)
    """By job UID and node: what that gang holds or has reserved."""
    held: frozenset[str] = frozenset()
    """Nodes that are kept for gangs ahead in the queue."""
    exclusive: Mapping[str, str] = field(default_factory=dict)
    """By job UID, of gangs that share their domains with no other: the level of those domains."""
    idle: Mapping[str, Resources] | None = field(default=None, repr=False, compare=False)
    """By node: what would be left if every gang were gone, where that is known already."""
    _verdicts: dict[NodeRules, Verdicts] = field(default_factory=dict, repr=False, compare=False)
    """What was found out once; most gangs of a queue are alike, and nodes do not change within a snapshot."""
    counts: dict[tuple[Resources, NodeRules], tuple[int, str]] = field(
        init=False, default_factory=dict, repr=False, compare=False
    )
    """By kind of pod: the room that was counted for it, and what the nodes are doing. Of this very moment only."""

    def free_for(self, gang: GangRequest) -> dict[str, Resources]:
        """What the gang may take of every node. Its own pods count as free: they give way to its new ones."""
        own = self.own.get(gang.job_uid, {})
        return {**self.free, **{node: self.free[node] + amount for node, amount in own.items() if node in self.free}}

    def takers(self, rules: NodeRules) -> tuple[NodeCapacity, ...]:
        """Nodes that take pods with these rules, by name."""
        return self._judge(rules).takers

    def obstacles(self, rules: NodeRules) -> Counter[Obstacle]:
        """How many of the other nodes do not, by cause."""
        return self._judge(rules).obstacles

    def _judge(self, rules: NodeRules) -> Verdicts:
        if rules not in self._verdicts:
            verdicts = [(node, rules.obstacle(node)) for node in self.nodes]
            takers = sorted((node for node, obstacle in verdicts if obstacle is None), key=lambda node: node.name)
            self._verdicts[rules] = Verdicts(tuple(takers), Counter(o for _, o in verdicts if o is not None))
        return self._verdicts[rules]

    def with_placed(self, gang: GangRequest, placed: Placed) -> Snapshot:
        """The same moment after the gang was given its nodes; what it holds elsewhere stays taken until it is gone."""
        requests = {role.role: role.resources for role in gang.roles}
        wanted: dict[str, Resources] = {}
        for (role, node), count in Counter((member[0], node) for member, node in placed.nodes.items()).items():
            wanted[node] = wanted.get(node, NOTHING) + requests[role] * count
        own, free = dict(self.own.get(gang.job_uid, {})), dict(self.free)
        for node, amount in wanted.items():
            before = own.get(node, NOTHING)
            own[node] = amount.most(before)
            free[node] += before - own[node]
        alone = {gang.job_uid: gang.layout.exclusive} if gang.layout and gang.layout.exclusive else {}
        return replace(self, free=free, own={**self.own, gang.job_uid: own}, exclusive={**self.exclusive, **alone})

    def holding(self, nodes: frozenset[str]) -> Snapshot:
        """The same moment with these nodes kept for gangs ahead."""
        return replace(self, held=nodes)

    def without(self, job_uids: Iterable[str]) -> Snapshot:
        """The same moment if these gangs, with all that they hold, were gone."""
        gone = {uid: self.own[uid] for uid in job_uids if uid in self.own}
        if not gone:
            return self
        free = dict(self.free)
        for own in gone.values():
            for node, amount in own.items():
                if node in free:
                    free[node] += amount
        return replace(
            self,
            free=free,
            own={uid: own for uid, own in self.own.items() if uid not in gone},
            exclusive={uid: level for uid, level in self.exclusive.items() if uid not in gone},
        )

    def without_gangs(self) -> Snapshot:
        """The cluster as it would be if every gang were gone and only foreign pods remained."""
        if self.idle is not None:
            return replace(self, free=self.idle, own={}, held=frozenset(), exclusive={})
        return replace(self.without(self.own), held=frozenset(), exclusive={})
