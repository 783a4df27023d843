"""Every right that the operator needs, as data; the chart's roles are tested against it, and it is checked at start.

With endless retries a missing right would otherwise show as silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import ApiError
from meshwright.cluster.resources import ACCESS_REVIEWS
from meshwright_api import names


class Scope(StrEnum):
    """Where a right must hold."""

    CLUSTER = "Cluster"
    """Cluster-wide; for reading capacity."""
    AGENTS = "Agents"
    """Cluster-wide; for knowing agents by their tokens."""
    JOBS = "Jobs"
    """In every namespace that is served: cluster-wide, or namespace by namespace."""
    ISOLATION = "Isolation"
    """The same, where jobs get a NetworkPolicy."""
    DOMAINS = "Domains"
    """The same, where a profile gives jobs ComputeDomains."""
    OWN = "Own"
    """In the operator's own namespace."""


@dataclass(frozen=True, slots=True)
class Permission:
    """One right: a verb on a resource, and where."""

    verb: str
    group: str
    resource: str
    subresource: str
    scope: Scope
    name: str = ""
    """Only this object, if not empty."""
    namespace: str = ""
    """Filled in by `needed`; empty means cluster-wide."""

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        what += f".{self.group}" if self.group else ""
        which = f" {self.name!r}" if self.name else ""
        where = f"in namespace {self.namespace}" if self.namespace else "cluster-wide"
        return f"{self.verb} {what}{which} {where}"


def _rights(scope: Scope, group: str, resource: str, verbs: str, name: str = "") -> tuple[Permission, ...]:
    plural, _, subresource = resource.partition("/")
    return tuple(Permission(verb, group, plural, subresource, scope, name) for verb in verbs.split())


PERMISSIONS: Final = (
    *_rights(Scope.JOBS, names.GROUP, "trainingjobs", "get list watch delete"),
    *_rights(Scope.JOBS, names.GROUP, "trainingjobs/status", "patch"),
    # Clusters that enforce owner references let only him block an owner's deletion who may update its finalizers.
    *_rights(Scope.JOBS, names.GROUP, "trainingjobs/finalizers", "update"),
    *_rights(Scope.JOBS, "", "pods", "get list watch create delete"),
    *_rights(Scope.JOBS, "", "services", "create"),
    *_rights(Scope.JOBS, "", "configmaps", "get list create delete"),
    *_rights(Scope.JOBS, "", "namespaces", "get"),
    *_rights(Scope.JOBS, "", "resourcequotas", "list"),
    *_rights(Scope.JOBS, "events.k8s.io", "events", "create patch"),
    *_rights(Scope.ISOLATION, "networking.k8s.io", "networkpolicies", "get create update"),
    *_rights(Scope.DOMAINS, "resource.nvidia.com", "computedomains", "get list create delete"),
    # For the finalizer of jobs that have some; a status patch cannot set it.
    *_rights(Scope.DOMAINS, names.GROUP, "trainingjobs", "patch"),
    *_rights(Scope.CLUSTER, "", "nodes", "list watch"),
    *_rights(Scope.CLUSTER, "", "pods", "list watch"),
    *_rights(Scope.CLUSTER, "scheduling.k8s.io", "priorityclasses", "list"),
    *_rights(Scope.AGENTS, "authentication.k8s.io", "tokenreviews", "create"),
    *_rights(Scope.OWN, "coordination.k8s.io", "leases", "get update", name="*"),
    # Not to create it: who may create any Secret can have a token of any account in the namespace written into one.
    *_rights(Scope.OWN, "", "secrets", "get update", name="*-keys"),
)
"""`*` in a name stands for the Lease's configured name."""


def needed(
    namespaces: Iterable[str],
    *,
    capacity_reader: bool,
    own_namespace: str,
    lease_name: str,
    heartbeats: bool = True,
    isolation: bool = True,
    domains: bool = False,
) -> tuple[Permission, ...]:
    """The rights that a process with these settings needs, each with its namespace."""
    served = tuple(namespaces) or ("",)
    in_served = {Scope.JOBS: True, Scope.ISOLATION: isolation, Scope.DOMAINS: domains}
    found: list[Permission] = []
    for right in PERMISSIONS:
        if right.scope in in_served:
            if in_served[right.scope]:
                found += (replace(right, namespace=namespace) for namespace in served)
        elif right.scope is Scope.OWN:
            if heartbeats or right.resource != "secrets":
                found.append(replace(right, namespace=own_namespace, name=right.name.replace("*", lease_name)))
        elif heartbeats if right.scope is Scope.AGENTS else capacity_reader:
            found.append(right)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Answers:
    """What the API server's authorizer said of some rights."""

    denied: tuple[Permission, ...] = ()
    unanswered: tuple[Permission, ...] = ()
    error: ApiError | None = None
    """Why the unanswered ones were not answered."""


async def check(api: ApiServer, rights: Iterable[Permission]) -> Answers:
    """Asks the API server's authorizer which of `rights` this process lacks.

    A question that fails does not spoil the others: on a server so slow that some time out, those that are left are
    fewer each time.
    """
    asked = tuple(rights)
    results = await asyncio.gather(*(_granted(api, right) for right in asked), return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, ApiError):
            raise result
    found = tuple(zip(asked, results, strict=True))
    return Answers(
        denied=tuple(right for right, result in found if result is False),
        unanswered=tuple(right for right, result in found if isinstance(result, ApiError)),
        error=next((result for result in results if isinstance(result, ApiError)), None),
    )


def explain(lacking: Iterable[Permission], *, namespaced: bool) -> str:
    """What an administrator must do about missing rights."""
    kind = "Role in each served namespace" if namespaced else "ClusterRole"
    rights = "; ".join(map(str, lacking))
    return f"the operator lacks rights and does not lead until they are given, in the chart's {kind}: {rights}"


async def _granted(api: ApiServer, right: Permission) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.group,
        "resource": right.resource,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    review: Json = {
        "apiVersion": f"{ACCESS_REVIEWS.group}/{ACCESS_REVIEWS.version}",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await api.create(ACCESS_REVIEWS, None, review, fenced=False)
    return bool((answer.get("status") or {}).get("allowed"))
