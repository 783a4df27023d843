"""A profile under a job's pod template. Whatever the template says itself stands."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from meshwright.rendering.fabric.merging import laid_over
from meshwright.rendering.fabric.profile import Profile
from meshwright.rendering.fabric.reading import MULTUS
from meshwright.rendering.pinning import narrowed
from meshwright_api.quantity import parse

SHARED_MEMORY: Final = "/dev/shm"
HUGE_PAGES: Final = "/dev/hugepages"
_SHARED_MEMORY_VOLUME: Final = "meshwright-shm"
_HUGE_PAGES_VOLUME: Final = "meshwright-hugepages"


def laid_under(
    template: Mapping[str, Any], position: int, profile: Profile, *, mounted: Collection[str], variables: str
) -> dict[str, Any]:
    """The pod template of a role with the profile under it.

    Args:
        template: as the job has it.
        position: of the trained container.
        profile: what its pods need.
        mounted: paths at which the job's own volumes are mounted, beside those in the template.
        variables: name of the ConfigMap with the profile's variables, for a container that reads others from maps:
            which variables those hold is not known here, and they must win.
    """
    spec = dict(template.get("spec") or {})
    containers = [dict(container) for container in spec.pop("containers")]
    below = dict(profile.template.get("spec") or {})
    trainer: Mapping[str, Any] = next(iter(below.pop("containers", None) or ()), {})
    own = containers[position]
    paths = {mount.get("mountPath") for mount in own.get("volumeMounts") or ()} | set(mounted)
    volumes, mounts = _volumes(profile, paths)
    containers[position] = _container(own, trainer, profile, mounts, variables)
    spec = laid_over(spec, _pod(profile, below, volumes))
    if profile.expressions:
        spec["affinity"] = narrowed(spec.get("affinity"), "matchExpressions", profile.expressions)
    metadata = laid_over(template.get("metadata") or {}, _metadata(profile))
    return {**template, "metadata": metadata, "spec": {**spec, "containers": containers}}


def needs_variables_map(template: Mapping[str, Any], position: int, profile: Profile) -> bool:
    """Whether the trained container reads variables from maps, so that the profile's must come from one as well."""
    return bool(profile.env and template["spec"]["containers"][position].get("envFrom"))


def _metadata(profile: Profile) -> dict[str, Any]:
    annotations = dict(profile.annotations)
    if profile.nics is not None:
        networks = profile.nics.networks
        each = networks * profile.nics.count if len(networks) == 1 else networks
        annotations[MULTUS] = ", ".join(each)
    given = profile.template.get("metadata") or {}
    return laid_over({"annotations": annotations} if annotations else {}, given)


def _pod(profile: Profile, template: Mapping[str, Any], volumes: list[dict[str, Any]]) -> dict[str, Any]:
    pod: dict[str, Any] = {"volumes": volumes} if volumes else {}
    if profile.host_network:
        pod["hostNetwork"] = True
    return laid_over(pod, template)


def _volumes(profile: Profile, paths: Collection[object]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Volumes of the profile and their mounts, where the job has nothing mounted itself."""
    wanted: list[tuple[str, str, dict[str, Any]]] = []
    if profile.shared_memory:
        memory = {"medium": "Memory", "sizeLimit": profile.shared_memory}
        wanted.append((_SHARED_MEMORY_VOLUME, SHARED_MEMORY, memory))
    wanted += (
        (_HUGE_PAGES_VOLUME, HUGE_PAGES, {"medium": f"HugePages-{name.removeprefix('hugepages-')}"})
        for name in profile.huge_pages
    )
    free = [(name, path, source) for name, path, source in wanted if path not in paths]
    volumes = [{"name": name, "emptyDir": source} for name, _, source in free]
    return volumes, [{"name": name, "mountPath": path} for name, path, _ in free]


def _container(
    own: Mapping[str, Any],
    trainer: Mapping[str, Any],
    profile: Profile,
    mounts: list[dict[str, Any]],
    variables: str,
) -> dict[str, Any]:
    below: dict[str, Any] = {"volumeMounts": mounts} if mounts else {}
    if profile.image:
        below["image"] = profile.image
    if profile.capabilities:
        below["securityContext"] = {"capabilities": {"add": list(profile.capabilities)}}
    if profile.env and own.get("envFrom"):
        below["envFrom"] = [{"configMapRef": {"name": variables}}]
    elif profile.env:
        below["env"] = [{"name": name, "value": value} for name, value in profile.env.items()]
    below = laid_over(below, {key: value for key, value in trainer.items() if key != "name"})
    if own.get("image") == "":
        own = {**own, "image": None}
    merged = laid_over(own, below)
    if resources := _resources(profile, own.get("resources") or {}, merged.get("resources") or {}):
        merged["resources"] = resources
    return merged


def _resources(profile: Profile, own: Mapping[str, Any], merged: Mapping[str, Any]) -> dict[str, Any]:
    """Devices and huge pages beside what the container asks for; of what it asks for itself, it gets that."""
    said = {**(own.get("requests") or {}), **(own.get("limits") or {})}
    counted = {profile.nics.resource: profile.nics.count} if profile.nics else {}
    wanted = {**profile.resources, **counted, **profile.huge_pages}
    more = {name: str(amount) for name, amount in wanted.items() if name not in said and parse(amount) != 0}
    return {**merged, "limits": {**(merged.get("limits") or {}), **more}} if more else dict(merged)
