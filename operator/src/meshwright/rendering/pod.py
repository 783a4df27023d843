"""The pod of a role: the user's template, and what a gang needs laid over it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from meshwright.rendering import agent, builtin
from meshwright.rendering.environment import PLAN_FILE, environment
from meshwright.rendering.fabric import domains
from meshwright.rendering.objects import labels, owned
from meshwright.rendering.perpod import PerPod, Stencil
from meshwright.rendering.pinning import pinned
from meshwright.rendering.security import container_context, pod_context
from meshwright.rendering.settings import RenderSettings
from meshwright.rendering.world import World
from meshwright_api import names
from meshwright_api.reserved import GPU, MOUNT, TRAINER
from meshwright_api.resolve import ResolvedRole
from meshwright_api.spec import TrainingJobSpec, Volume

_PLAN_VOLUME: Final = "meshwright-plan"


def pod_stencil(
    world: World, role: ResolvedRole, spec: TrainingJobSpec, settings: RenderSettings, *, pin: bool
) -> Stencil:
    """What all pods of the role have in common, with places for what differs."""
    template = json.loads(json.dumps(dict(role.template)))
    pod = pod_spec(world, role, spec, settings, template.get("spec") or {})
    if pin:
        pod["affinity"] = pinned(pod.get("affinity"), PerPod("{node}"))
    given = template.get("metadata") or {}
    metadata = owned(world.metadata, PerPod(world.host_pattern(role.name)))
    metadata["labels"] = (
        (given.get("labels") or {})
        | labels(world.metadata, world.incarnation)
        | {names.LABEL_ROLE: role.name, names.LABEL_INDEX: PerPod("{index}")}
    )
    trained = pod["containers"][role.container]["name"]
    metadata["annotations"] = (
        {"kubectl.kubernetes.io/default-container": trained}
        | (given.get("annotations") or {})
        | ({names.ANNOTATION_CONTAINER: trained} if trained != TRAINER else {})
        | {names.ANNOTATION_PLAN: PerPod("{plan}")}
    )
    return Stencil.cut({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod})


def pod_spec(
    world: World, role: ResolvedRole, spec: TrainingJobSpec, settings: RenderSettings, template: Mapping[str, Any]
) -> dict[str, Any]:
    """The spec of the role's pods, not yet bound to nodes."""
    pod = {key: value for key, value in template.items() if value is not None}
    # By default every Service of the namespace becomes variables; one called `master` would give a MASTER_PORT.
    pod.setdefault("enableServiceLinks", False)
    if pod.get("hostNetwork"):
        # With the default the node's resolver is asked, which knows none of the gang's names.
        pod.setdefault("dnsPolicy", "ClusterFirstWithHostNet")
    if spec.queue.priority_class_name:
        pod["priorityClassName"] = spec.queue.priority_class_name
    env = environment(world, role)
    for kind in ("initContainers", "containers"):
        if pod.get(kind):
            pod[kind] = [_container(container, env) for container in pod[kind]]
    trained = _trained(pod["containers"][role.container], role, spec.volumes)
    volumes = [
        *pod.get("volumes", ()),
        *({"name": volume.name, **volume.source()} for volume in spec.volumes),
        _plan_volume(world),
    ]
    if world.trainer is not None:
        more = builtin.additions(world.trainer, frozenset(mount["mountPath"] for mount in trained["volumeMounts"]))
        trained = builtin.program(trained, settings, host_network=world.ports is not None) | {
            "volumeMounts": [*trained["volumeMounts"], *more.mounts]
        }
        volumes += more.volumes
    if world.profile is not None and world.profile.compute_domain and role.name in world.on_fabric:
        trained = domains.opened(trained)
        pod["resourceClaims"] = domains.joined(pod)
    if world.agent:
        trained = agent.wrapped(trained)
        volumes += agent.volumes()
        pod["initContainers"] = [agent.installer(settings), *pod.get("initContainers", ())]
    pod["containers"][role.container] = trained
    # Our own image has a user of its own; stock images run as root.
    non_root = settings.run_as_non_root or world.trainer is not None
    return pod | {
        "volumes": volumes,
        "restartPolicy": "Never",
        "hostname": PerPod(world.host_pattern(role.name)),
        "subdomain": world.gang,
        "securityContext": pod_context(pod.get("securityContext"), run_as_non_root=non_root),
    }


def _container(container: Mapping[str, Any], env: list[dict[str, Any]]) -> dict[str, Any]:
    own = container.get("env") or []
    return {
        # What a script prints last is the best evidence of why it ended.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        **container,
        "env": [*env, *_unbuffered(own), *own],
        "volumeMounts": [
            *(container.get("volumeMounts") or ()),
            {"name": _PLAN_VOLUME, "mountPath": MOUNT, "readOnly": True},
        ],
        "securityContext": container_context(container.get("securityContext")),
    }


def _unbuffered(own: list[dict[str, Any]]) -> list[dict[str, Any]]:
    # A killed Python takes what it has not flushed with it: its last steps and its last words.
    name = "PYTHONUNBUFFERED"
    return [] if any(variable.get("name") == name for variable in own) else [{"name": name, "value": "1"}]


def _trained(container: Mapping[str, Any], role: ResolvedRole, volumes: tuple[Volume, ...]) -> dict[str, Any]:
    trained = {**container, "volumeMounts": [*container["volumeMounts"], *map(_mount, volumes)]}
    if role.gpus_per_pod:
        resources = container.get("resources") or {}
        limits = {**(resources.get("limits") or {}), GPU: str(role.gpus_per_pod)}
        trained["resources"] = {**resources, "limits": limits}
    return trained


def _mount(volume: Volume) -> dict[str, Any]:
    mount: dict[str, Any] = {"name": volume.name, "mountPath": volume.mount_path}
    if volume.sub_path:
        mount["subPath"] = volume.sub_path
    if volume.read_only:
        mount["readOnly"] = True
    return mount


def _plan_volume(world: World) -> dict[str, Any]:
    name = names.plan_name(world.metadata.name, world.metadata.uid, world.incarnation)
    source = {"name": name, "items": [{"key": PLAN_FILE, "path": PLAN_FILE}]}
    return {"name": _PLAN_VOLUME, "configMap": source}
