"""Where a job is, or would be, in the cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from meshwright.picture.census import Seat, census
from meshwright.picture.inventory import Inventory
from meshwright.picture.model import Picture, Sited, State
from meshwright.picture.rooms import crossings, rooms
from meshwright.placement.model import GangRequest, Member, Placed
from meshwright.placement.nesting.solver import TopologySolver
from meshwright.placement.queueing.preemption import Holder
from meshwright.placement.queueing.queue import Circumstances, judge
from meshwright.placement.topology.tree import Topology, Tree
from meshwright.rendering import gang as rendering
from meshwright.rendering.errors import Unrenderable
from meshwright.rendering.fabric.reading import Profiles
from meshwright.rendering.settings import RenderSettings
from meshwright.rendering.surroundings import suited
from meshwright.rendering.world import World
from meshwright_api import names
from meshwright_api.job import TrainingJob
from meshwright_api.status import Phase


@dataclass(frozen=True)
class Rules:
    """What the operator goes by beside nodes, pods and jobs."""

    priorities: Mapping[str, int] = field(default_factory=dict)
    """Values of the PriorityClasses; of the default class under the empty name."""
    profiles: Profiles | None = field(default_factory=Profiles)
    """Fabric profiles; None if they are not known."""
    namespace_labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Labels of namespaces, as far as they are known."""
    now: datetime | None = None
    """None: so late that nobody who waits may be passed any more."""
    passing: timedelta = timedelta(hours=1)
    """For how long a gang that waits may be passed: the operator's setting, or its default."""


class Siting:
    """One cluster at one moment, ready to be drawn."""

    def __init__(
        self,
        inventory: Inventory,
        topology: Topology,
        called: str,
        rules: Rules | None = None,
        *,
        guessed: bool = False,
    ) -> None:
        """Prepares.

        Args:
            inventory: what is in the cluster.
            topology: its levels.
            called: what to call the topology.
            rules: what else the operator goes by.
            guessed: whether it was found out from the nodes' labels.
        """
        self._inventory = inventory
        self._snapshot = inventory.snapshot()
        self._tree = Tree.of(topology, inventory.nodes)
        self._solver = TopologySolver(topology)
        self._called, self._guessed = called, guessed
        self._rules = rules or Rules()

    def cluster(self) -> Picture:
        """The cluster without a job."""
        return self._picture(None, {})

    def job(self, job: TrainingJob) -> Picture:
        """A job where its pods are; one that has none, where it would start now, or why it would not.

        It stands behind those that wait before it, in the order of the operator's queue.
        """
        places = self._inventory.places(job.metadata.uid)
        try:
            request = self._request(job)
        except Unrenderable as error:
            # What runs keeps the profile that it started with, whatever became of it.
            request = rendering.request(job)
            if not places:
                sited = replace(_sited(job, request, State.WAITS), reason=error.reason, message=str(error))
                return self._picture(sited, {})
        if places:
            return self._placed(job, request, State.RUNS, places)
        others = list(self._ahead(job.metadata.uid))
        given = self._circumstances()
        answer = judge([*others, request], self._snapshot, self._solver, given).verdict(request.job_uid)
        if isinstance(answer, Placed):
            return self._placed(job, request, State.WOULD_START, answer.nodes, rendering.note(request, answer))
        found = rooms(self._tree, request, self._snapshot)
        sited = _sited(job, request, State.WAITS)
        sited = replace(sited, reason=answer.reason, message=answer.message, rooms=found)
        return self._picture(sited, {})

    def _circumstances(self) -> Circumstances:
        if self._rules.now is None:
            return Circumstances()
        holders = {
            job.metadata.uid: Holder(
                job.metadata.uid, self._priority(job), job.metadata.creation_timestamp or self._rules.now
            )
            for job in self._inventory.jobs
            if job.metadata.uid in self._snapshot.own
        }
        return Circumstances(self._rules.now, self._rules.passing, holders)

    def _priority(self, job: TrainingJob) -> int:
        return self._rules.priorities.get(job.spec.queue.priority_class_name or "", 0)

    def _request(self, job: TrainingJob) -> GangRequest:
        """As the operator asks; pods ask for what their profile gives them, too.

        Raises:
            Unrenderable: the job waits for a change of itself, of a profile or of its namespace.
        """
        rules, namespace, profile = self._rules, job.metadata.namespace, None
        if rules.profiles is not None:
            settings = RenderSettings.for_namespace(rules.namespace_labels.get(namespace, {}))
            profile = suited(job, settings, rules.profiles, lambda: self._inventory.nodes).profile
        return rendering.request(job, priority=self._priority(job), profile=profile)

    def _ahead(self, uid: str) -> Iterator[GangRequest]:
        """The gangs that wait beside this one."""
        for other in self._waiting():
            if other.metadata.uid != uid:
                try:
                    yield self._request(other)
                except Unrenderable:
                    continue  # It keeps no place in the queue.

    def _waiting(self) -> Iterator[TrainingJob]:
        for job in self._inventory.jobs:
            waits = job.status.phase in (None, Phase.PENDING) and not job.spec.suspend
            if waits and job.metadata.uid and not self._inventory.places(job.metadata.uid):
                yield job

    def _placed(
        self, job: TrainingJob, request: GangRequest, state: State, places: Mapping[Member, str], note: str = ""
    ) -> Picture:
        found = crossings(self._tree, request, self._snapshot, places)
        sited = replace(_sited(job, request, state), crossing=found, message=note)
        return self._picture(sited, _seats(job, request, places, holds=state is State.RUNS))

    def _picture(self, sited: Sited | None, seats: Mapping[str, Seat]) -> Picture:
        return Picture(
            topology=self._called,
            guessed=self._guessed,
            levels=self._tree.levels[1:],
            root=census(self._tree, self._snapshot, seats),
            unlabelled=tuple(sorted(self._tree.unlabelled.items())),
            job=sited,
        )


def _sited(job: TrainingJob, request: GangRequest, state: State) -> Sited:
    world, status = World.of(job, incarnation=0), job.status
    scheduled = next((c for c in status.conditions if c.type == names.SCHEDULED), None)
    return Sited(
        name=job.metadata.name,
        namespace=job.metadata.namespace,
        state=state,
        mesh=tuple((axis.name, axis.size) for axis in world.mesh() if axis.size > 1),
        pods=request.size,
        processes=world.size,
        phase=str(status.phase or ""),
        told=f"{scheduled.reason}: {scheduled.message}" if scheduled and scheduled.message else "",
    )


def _seats(job: TrainingJob, request: GangRequest, places: Mapping[Member, str], *, holds: bool) -> dict[str, Seat]:
    """What the job has on every node."""
    plans = {role.name: role for role in World.of(job, incarnation=0).role_plans()}
    gpus = {role.role: role.resources.gpus for role in request.roles}
    on: dict[str, list[Member]] = {}
    for member, node in places.items():
        on.setdefault(node, []).append(member)
    seats = {}
    for node, members in on.items():
        ranks: list[int] = []
        for name, index in members:
            # A pod of a spec that was changed since has no rank in this one.
            if (plan := plans.get(name)) and index < plan.replicas:
                first = plan.first_rank + index * plan.processes_per_pod
                ranks += range(first, first + plan.processes_per_pod)
        seats[node] = Seat(len(members), sum(gpus.get(role, 0) for role, _ in members), tuple(sorted(ranks)), holds)
    return seats
