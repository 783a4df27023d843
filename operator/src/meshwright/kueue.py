"""Levels from a Kueue `Topology` object, for clusters whose administrators keep them there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from meshwright.cluster.api import ApiServer
from meshwright.cluster.errors import Forbidden, NotFound
from meshwright.cluster.resources import Resource
from meshwright.placement.errors import InvalidTopology
from meshwright.placement.topology.levels import kueue_levels, with_bandwidth
from meshwright.placement.topology.tree import Topology

GROUP: Final = "kueue.x-k8s.io"


@dataclass(frozen=True)
class Levels:
    """What the API server has, or why there is nothing to use."""

    topology: Topology
    problem: str = ""


async def read_levels(api: ApiServer, name: str, bandwidth: tuple[str, ...]) -> Levels:
    """The levels of the `Topology` of that name, or of the only one.

    Args:
        api: the API server.
        name: which object; empty where there is one alone.
        bandwidth: `level=GB/s`.

    Raises:
        ApiError: the API server failed; ask again.
    """
    try:
        objects = {str(item["metadata"]["name"]): item for item in (await api.list(await _kind(api))).items}
    except NotFound:
        return Levels(
            Topology(), f"the cluster has no kind Topology of {GROUP}; install Kueue, or name levels yourself"
        )
    except Forbidden as error:
        return Levels(Topology(), f"Kueue's Topology objects may not be read: {error}")
    wanted = objects.get(name) if name else next(iter(objects.values()), None)
    if wanted is None or (len(objects) > 1 and not name):
        there = ", ".join(sorted(objects)) or "none"
        asked = f"there is no Topology {name!r}" if name else "one Topology was expected"
        return Levels(Topology(), f"{asked}, there are: {there}; name one with the setting kueue-topology")
    try:
        return Levels(with_bandwidth(kueue_levels(wanted), bandwidth))
    except InvalidTopology as error:
        return Levels(Topology(), f"Kueue's Topology {wanted['metadata']['name']!r} cannot be used: {error}")


async def _kind(api: ApiServer) -> Resource:
    """The kind in the version that the API server prefers; they differ in nothing that is read here."""
    group = await api.request("GET", f"/apis/{GROUP}", label=("get", "apis"))
    versions = [str((group.get("preferredVersion") or {}).get("version") or ""), *_versions(group)]
    for version in dict.fromkeys(filter(None, versions)):
        served = await api.request("GET", f"/apis/{GROUP}/{version}", label=("get", "apis"))
        if any(kind.get("name") == "topologies" for kind in served.get("resources") or ()):
            return Resource(GROUP, version, "topologies", namespaced=False)
    raise NotFound(404, "NotFound", "no version of the group serves topologies")


def _versions(group: dict[str, object]) -> list[str]:
    versions = group.get("versions")
    return [str(v.get("version")) for v in versions if isinstance(v, dict)] if isinstance(versions, list) else []
