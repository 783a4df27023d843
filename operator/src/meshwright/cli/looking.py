"""Reads a cluster with the rights of the person who asks: nothing is written but access reviews."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from kubernetes.aio.config.kube_config import list_kube_config_contexts

from meshwright.cli.fabrics import SELECTOR, KnownProfiles, denied, from_config_maps
from meshwright.cli.levels import Chosen
from meshwright.cli.seen import Access, CannotRead, Seen
from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.credentials import Credentials
from meshwright.cluster.errors import Forbidden, NotFound
from meshwright.cluster.permissions import Permission, Scope, check
from meshwright.cluster.resources import CONFIGMAPS, NAMESPACES, NODES, PODS, PRIORITY_CLASSES, TRAININGJOBS, Resource
from meshwright.kueue import read_levels
from meshwright.picture.inventory import Inventory
from meshwright.placement.topology.tree import Topology

_NEEDED = tuple(Permission("list", "", plural, "", Scope.CLUSTER) for plural in ("nodes", "pods"))


async def look(access: Access, job: str, wanted: Chosen, fabrics: KnownProfiles) -> Seen:
    """Everything that placement looks at, as far as it may be seen, and perhaps one job.

    Args:
        access: the cluster.
        job: name of that job, empty for none.
        wanted: which levels to go by.
        fabrics: the profiles, if they are known already.

    Raises:
        CannotRead: there is no such job, or Kueue's levels cannot be read.
        ClusterError: the cluster cannot be reached or refuses.
        InvalidProfile: a profile in it cannot be used.
    """
    async with _api(access) as api:
        namespace = access.namespace or _namespace_of(access)
        found = await _job(api, namespace, job) if job else None
        answers = await check(api, _NEEDED)
        if answers.error:
            raise answers.error
        if answers.denied:
            lacks = " and ".join(map(str, answers.denied))
            return Seen(None, namespace, found, lacks=lacks)
        nodes, pods = await _all(api, NODES), await _all(api, PODS)
        jobs = await _if_allowed(api, TRAININGJOBS) or ([found] if found else [])
        namespaces = await _if_allowed(api, NAMESPACES)
        return Seen(
            Inventory.of(nodes, pods, jobs),
            namespace,
            found,
            _values(await _if_allowed(api, PRIORITY_CLASSES)),
            {each["metadata"]["name"]: each["metadata"].get("labels") or {} for each in namespaces},
            fabrics if fabrics.profiles is not None else await _fabrics(api),
            await _kueue(api, wanted) if wanted.from_kueue else None,
        )


@asynccontextmanager
async def _api(access: Access) -> AsyncIterator[ApiServer]:
    api = ApiServer(await Credentials.find(access.kubeconfig, access.context or None))
    try:
        yield api
    finally:
        await api.close()


async def _job(api: ApiServer, namespace: str, name: str) -> Json:
    try:
        return await api.get(TRAININGJOBS, namespace, name)
    except NotFound as error:
        raise CannotRead(f"there is no TrainingJob {name} in namespace {namespace}; choose another with -n") from error


async def _all(api: ApiServer, resource: Resource) -> list[Json]:
    return (await api.list(resource)).items


async def _if_allowed(api: ApiServer, resource: Resource) -> list[Json]:
    try:
        return await _all(api, resource)
    except (Forbidden, NotFound):
        return []


def _values(classes: list[Json]) -> dict[str, int]:
    """By name. A job without a class has the default class, of several the lowest, as the API server has it."""
    values = {each["metadata"]["name"]: int(each.get("value") or 0) for each in classes}
    defaults = [values[each["metadata"]["name"]] for each in classes if each.get("globalDefault")]
    return {**values, "": min(defaults, default=0)}


async def _fabrics(api: ApiServer) -> KnownProfiles:
    try:
        return from_config_maps((await api.list(CONFIGMAPS, query={"labelSelector": SELECTOR})).items)
    except Forbidden:
        return denied()


async def _kueue(api: ApiServer, wanted: Chosen) -> Topology:
    found = await read_levels(api, wanted.kueue, wanted.bandwidth)
    if found.problem:
        raise CannotRead(found.problem)
    return found.topology


def _namespace_of(access: Access) -> str:
    """The namespace of the context, as kubectl takes it; with a pod's service account there is no context."""
    if not access.kubeconfig:
        return "default"
    contexts, current = list_kube_config_contexts(access.kubeconfig)  # type: ignore[no-untyped-call]
    chosen: Any = next((c for c in contexts if c["name"] == access.context), current)
    return str((chosen.get("context") or {}).get("namespace") or "default")
