"""What a picture is made from: nodes, pods and jobs as the API server or a file has them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from meshwright.placement.errors import InvalidQuantity
from meshwright.placement.model import Member, Snapshot
from meshwright.placement.supply.capacity import PodUse, snapshot
from meshwright.placement.supply.nodes import NodeCapacity
from meshwright_api import names
from meshwright_api.errors import InvalidJob
from meshwright_api.job import TrainingJob, parse_job

Json = Mapping[str, Any]
T = TypeVar("T")


class InvalidObject(ValueError):
    """An object is not as the API server has it; the message names it."""


@dataclass(frozen=True)
class Inventory:
    """Everything in a cluster that placement looks at."""

    nodes: tuple[NodeCapacity, ...]
    pods: tuple[PodUse, ...] = ()
    """Those that hold something."""
    jobs: tuple[TrainingJob, ...] = ()
    """Those whose spec can be run."""

    @classmethod
    def of(cls, nodes: Iterable[Json], pods: Iterable[Json] = (), jobs: Iterable[Json] = ()) -> Inventory:
        """Reads objects. What nobody can place is left out, as the operator leaves it out.

        Raises:
            InvalidObject: one is not as the API server has it.
        """
        uses = _read("Pod", lambda pod: PodUse.parse(_with_node(pod)), pods)
        found = _read("Node", NodeCapacity.parse, nodes)
        return cls(
            tuple(sorted(found, key=lambda node: node.name)),
            tuple(use for use in uses if use is not None),
            tuple(_runnable(jobs)),
        )

    @classmethod
    def of_objects(cls, objects: Iterable[Json]) -> Inventory:
        """Sorts the objects of a file by kind: nodes, pods and TrainingJobs, in lists or one by one.

        Raises:
            InvalidObject: one is not as the API server has it.
        """
        by_kind: dict[str, list[Json]] = {}
        for kind, each in flat(objects):
            by_kind.setdefault(kind, []).append(each)
        return cls.of(by_kind.get("Node", ()), by_kind.get("Pod", ()), by_kind.get(names.KIND, ()))

    def snapshot(self) -> Snapshot:
        """What is free now, and which domains are one job's alone. Pods that are pinned and not bound yet count."""
        found = snapshot(self.nodes, self.pods)
        wishes = ((job.metadata.uid, job.spec.placement.exclusive) for job in self.jobs)
        return replace(found, exclusive={uid: level for uid, level in wishes if level and uid in found.own})

    def places(self, job_uid: str) -> dict[Member, str]:
        """The nodes of a job's pods; of its newest incarnation, where there are several."""
        newest: dict[Member, PodUse] = {}
        for use in self.pods:
            if job_uid and use.job_uid == job_uid:
                member = (use.role, use.index)
                if member not in newest or newest[member].incarnation < use.incarnation:
                    newest[member] = use
        return {member: use.node for member, use in newest.items()}

    def find(self, name: str, namespace: str) -> TrainingJob | None:
        """The job of that name."""
        return next((j for j in self.jobs if (j.metadata.name, j.metadata.namespace) == (name, namespace)), None)


def _read(kind: str, parse: Callable[[Json], T], objects: Iterable[Json]) -> list[T]:
    """What the objects say; of one that is there twice, as in files that were joined, what the last says."""
    found: dict[object, T] = {}
    for each in objects:
        metadata = each.get("metadata")
        name, namespace = (
            (metadata.get(key) for key in ("name", "namespace")) if isinstance(metadata, Mapping) else ("", "")
        )
        if not name:
            raise InvalidObject(f"a {kind} has no metadata.name")
        try:
            found[namespace, name] = parse(each)
        except InvalidQuantity as error:
            raise InvalidObject(f"{kind} {name}: {error}") from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidObject(f"{kind} {name} is not as the API server has it: {error}") from error
    return list(found.values())


def _runnable(jobs: Iterable[Json]) -> Iterator[TrainingJob]:
    for raw in jobs:
        try:
            yield parse_job(raw)
        except InvalidJob:
            continue  # The operator does not place it either, and says so in its status.


def flat(objects: Iterable[object]) -> Iterator[tuple[str, Json]]:
    """Objects by kind, those in lists one by one; what has no kind is left out."""
    for each in objects:
        if not isinstance(each, Mapping):
            continue
        kind = str(each.get("kind") or "")
        if kind.endswith("List") and isinstance(each.get("items"), list):
            # Items of a `NodeList` need not say what they are.
            known = {"kind": kind.removesuffix("List")}
            yield from flat({**known, **item} for item in each["items"] if isinstance(item, Mapping))
        elif kind:
            yield kind, each


def _with_node(pod: Json) -> Json:
    """A pod that is pinned to a node counts there before kube-scheduler has bound it."""
    spec = pod.get("spec") or {}
    if spec.get("nodeName"):
        return pod
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or ()
    nodes = {
        name
        for term in terms
        for field in term.get("matchFields") or ()
        if field.get("key") == "metadata.name" and field.get("operator") == "In"
        for name in field.get("values") or ()
    }
    if len(nodes) != 1:
        return pod
    return {**pod, "spec": {**spec, "nodeName": nodes.pop()}}
