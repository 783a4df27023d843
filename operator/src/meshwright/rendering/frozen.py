"""The plan of one incarnation, frozen: everything its pods are made from.

It is kept in two ConfigMaps. The plan map is mounted in every pod and does not grow with their number. The placement
map is read by the operator alone: the nodes, and the rendered pod of each role. The hash covers both texts as they were
written, so a newer operator that finds them renders the rest of the pods as the older one would have.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby, islice, repeat
from typing import Any, Final

from meshwright.placement.model import Member, Placed, Resources
from meshwright.rendering.environment import PLAN_FILE
from meshwright.rendering.errors import PlanMismatch
from meshwright.rendering.fabric.ports import slots
from meshwright.rendering.objects import labels, owned
from meshwright.rendering.perpod import Stencil
from meshwright_api import names
from meshwright_api.errors import PlanError
from meshwright_api.job import Metadata
from meshwright_api.launch_plan import LaunchPlan
from meshwright_api.spec import MAX_PODS

PLACEMENT_FILE: Final = "placement.json.gz.b64"
_VERSION: Final = 1
_MOST_BYTES: Final = 64 * 2**20
"""A placement that unpacks to more is no placement of ours; whoever may write ConfigMaps could send a bomb."""


@dataclass(frozen=True)
class FrozenPlan:
    """One incarnation of a gang, ready to be stored and to make pods of."""

    plan_text: str
    """The launch plan as pods read it."""
    placement_text: str
    """Nodes and rendered pods, as the operator reads them."""
    launch_plan: LaunchPlan
    nodes: Mapping[Member, str]
    """By role and index; empty where kube-scheduler places the pods."""
    pods: Mapping[str, Stencil]
    """By role."""
    requests: Mapping[str, Resources]
    """What a pod of each role was given room for; a newer operator may count differently, this was reserved."""
    objects: tuple[Mapping[str, Any], ...] = ()
    """What must be there before the first pod, beside the Service and the two maps."""
    ports: range | None = None
    """On the host's network, the ports that are the gang's on its nodes."""
    domains: Mapping[Member, str] = field(default_factory=dict)
    """Name of the ComputeDomain of each pod that is in one."""

    @classmethod
    def make(
        cls,
        plan: LaunchPlan,
        pods: Mapping[str, Stencil],
        requests: Mapping[str, Resources],
        placed: Placed | None,
        objects: Iterable[Mapping[str, Any]] = (),
        ports: range | None = None,
        domains: Mapping[Member, str] | None = None,
    ) -> FrozenPlan:
        """Freezes a plan, its rendered pods, what they need, their places, and what they rely on."""
        held = domains or {}
        roles = [
            {
                "name": role.name,
                "pod": pods[role.name].dump(),
                "requests": {name: amount for name, amount in requests[role.name].items() if amount},
                "nodes": _runs(placed.nodes[role.name, index] for index in range(role.replicas)) if placed else [],
                "domains": _runs(held.get((role.name, index), "") for index in range(role.replicas)) if held else [],
            }
            for role in plan.roles
        ]
        block = [ports.start, ports.stop] if ports else []
        document = {"version": _VERSION, "roles": roles, "objects": list(objects), "ports": block}
        return cls._read(plan.to_json(), json.dumps(document, sort_keys=True, separators=(",", ":")))

    @classmethod
    def load(cls, plan_map: Mapping[str, Any], placement_map: Mapping[str, Any], sha256: str = "") -> FrozenPlan:
        """Reads back what `plan_config_map` and `placement_config_map` wrote.

        Args:
            plan_map: the ConfigMap with the launch plan.
            placement_map: the ConfigMap with nodes and rendered pods.
            sha256: the hash that was committed; without it only the two maps are held against each other.

        Raises:
            PlanMismatch: they are not what was committed.
        """
        stated = {_stated_hash(plan_map), _stated_hash(placement_map), sha256 or _stated_hash(plan_map)}
        if len(stated) != 1 or "" in stated:
            raise PlanMismatch("the stored plan and placement are of another plan than the committed one")
        try:
            texts = str(plan_map["data"][PLAN_FILE]), _unpack(placement_map["data"][PLACEMENT_FILE])
            # Before anything is made of them: what somebody else wrote could be built to do harm.
            if _digest(*texts) not in stated:
                raise PlanMismatch("the stored plan was changed: it does not have the hash it states")
            return cls._read(*texts)
        except (LookupError, TypeError, ValueError, RecursionError, zlib.error, PlanError) as error:
            raise PlanMismatch(f"the stored plan cannot be read: {error}") from error

    @classmethod
    def _read(cls, plan_text: str, placement_text: str) -> FrozenPlan:
        document = json.loads(placement_text)
        if document["version"] != _VERSION:
            raise ValueError(f"version {document['version']} of the placement is not known, only {_VERSION}")
        roles: list[Mapping[str, Any]] = document["roles"]
        return cls(
            plan_text=plan_text,
            placement_text=placement_text,
            launch_plan=LaunchPlan.from_json(plan_text),
            nodes={(role["name"], index): node for role in roles for index, node in enumerate(_unroll(role["nodes"]))},
            pods={role["name"]: Stencil.load(role["pod"]) for role in roles},
            requests={role["name"]: Resources.of(role["requests"]) for role in roles},
            objects=tuple(document.get("objects") or ()),
            ports=range(*map(int, document["ports"])) if document.get("ports") else None,
            domains={
                (role["name"], index): domain
                for role in roles
                for index, domain in enumerate(_unroll(role.get("domains") or ()))
                if domain
            },
        )

    @cached_property
    def slots(self) -> Mapping[Member, int]:
        """Which of the gang's pods on its node each pod is."""
        return slots(self.nodes)

    @cached_property
    def sha256(self) -> str:
        """Hash of everything the pods are made from: the commit in status."""
        return _digest(self.plan_text, self.placement_text)

    @property
    def job(self) -> Metadata:
        """The job, as far as its objects need it."""
        ref = self.launch_plan.job
        return Metadata(name=ref.name, namespace=ref.namespace, uid=ref.uid)

    @property
    def attempt(self) -> int:
        """The attempt that the pods start with."""
        return self.launch_plan.attempt

    @property
    def incarnation(self) -> int:
        """The set of pods that is made from this."""
        return self.launch_plan.incarnation

    @property
    def members(self) -> Iterator[Member]:
        """Every pod, in rank order."""
        return ((role.name, index) for role in self.launch_plan.roles for index in range(role.replicas))

    def plan_config_map(self) -> dict[str, Any]:
        """The map that pods mount."""
        return self._map("plan", names.plan_name, {PLAN_FILE: self.plan_text})

    def placement_config_map(self) -> dict[str, Any]:
        """The map that only the operator reads."""
        packed = gzip.compress(self.placement_text.encode(), mtime=0)
        return self._map("placement", names.placement_name, {PLACEMENT_FILE: base64.b64encode(packed).decode()})

    def _map(self, component: str, name: Callable[[str, str, int], str], data: Mapping[str, str]) -> dict[str, Any]:
        job = self.job
        metadata = owned(job, name(job.name, job.uid, self.incarnation))
        metadata["labels"] = labels(job, self.incarnation) | {names.LABEL_COMPONENT: component}
        metadata["annotations"] = {names.ANNOTATION_PLAN: self.sha256}
        # Immutable, so that thousands of kubelets need not watch it.
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data}


def _digest(*texts: str) -> str:
    digest = hashlib.sha256()
    for text in texts:
        # With its length, or a part of one text could pass for a part of the other.
        digest.update(f"{len(text.encode())}\n{text}".encode())
    return digest.hexdigest()


def _stated_hash(config_map: Mapping[str, Any]) -> str:
    annotations = (config_map.get("metadata") or {}).get("annotations") or {}
    return str(annotations.get(names.ANNOTATION_PLAN) or "")


def _unpack(packed: str) -> str:
    stream = zlib.decompressobj(wbits=31)
    text = stream.decompress(base64.b64decode(packed, validate=True), _MOST_BYTES)
    if not stream.eof:
        raise ValueError("the placement is cut short or too large")
    return text.decode()


def _runs(nodes: Iterable[str]) -> list[list[Any]]:
    """Neighbouring pods on one node as one entry."""
    return [[node, sum(1 for _ in pods)] for node, pods in groupby(nodes)]


def _unroll(runs: Iterable[tuple[str, int]]) -> Iterator[str]:
    # Whatever a map says, no gang is larger.
    return islice((node for node, count in runs for node in repeat(node, count)), MAX_PODS)
