"""Pods as values: what the API server sends is parsed here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from devcluster.node.volume_model import Volume, parse_volume

Object = Mapping[str, Any]


@dataclass(frozen=True)
class FieldRef:
    """A field of the pod, such as `metadata.name`."""

    path: str


@dataclass(frozen=True)
class ResourceRef:
    """A request or limit, such as `limits.cpu`; without a container name the container's own."""

    container: str
    resource: str
    divisor: str


@dataclass(frozen=True)
class KeyRef:
    """One key of a ConfigMap or Secret (`kind`)."""

    kind: str
    name: str
    key: str
    optional: bool


@dataclass(frozen=True)
class EnvVar:
    """One entry of `env`; `source` only counts when `value` is empty."""

    name: str
    value: str
    source: FieldRef | ResourceRef | KeyRef | None


@dataclass(frozen=True)
class EnvFrom:
    """One entry of `envFrom`."""

    kind: str
    name: str
    prefix: str
    optional: bool


@dataclass(frozen=True)
class VolumeMount:
    """Where a container sees a volume."""

    volume: str
    path: str
    sub_path: str
    sub_path_expr: str
    read_only: bool


@dataclass(frozen=True)
class Container:
    """A container's spec, as far as these nodes care.

    Attributes:
        not_honoured: Fields that are set and will have no effect, for the warning.
    """

    name: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    working_dir: str
    env: tuple[EnvVar, ...]
    env_from: tuple[EnvFrom, ...]
    mounts: tuple[VolumeMount, ...]
    limits: Mapping[str, str]
    requests: Mapping[str, str]
    message_path: str
    message_from_logs: bool
    restart_policy: str
    not_honoured: tuple[str, ...]


@dataclass(frozen=True)
class HostAlias:
    """One line that the user wants in /etc/hosts."""

    ip: str
    names: tuple[str, ...]


@dataclass(frozen=True)
class Pod:
    """One version of a pod.

    Attributes:
        deletion_grace: Seconds, once deletion was asked for; None before.
        seen: `state` of the containers as the API server has it, by name.
    """

    uid: str
    namespace: str
    name: str
    generation: int
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    node: str
    service_account: str
    hostname: str
    subdomain: str
    host_network: bool
    host_aliases: tuple[HostAlias, ...]
    containers: tuple[Container, ...]
    init_containers: tuple[Container, ...]
    volumes: Mapping[str, Volume]
    restart_policy: str
    termination_grace: int
    active_deadline: int | None
    deletion_grace: int | None
    phase: str
    reason: str
    ip: str
    start_time: str
    conditions: Mapping[str, Object]
    seen: Mapping[str, Object]
    not_honoured: tuple[str, ...]

    @property
    def finished(self) -> bool:
        """Whether its phase is final."""
        return self.phase in ("Succeeded", "Failed")

    @property
    def path(self) -> str:
        """Its address in the API."""
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.name}"

    def container(self, name: str) -> Container:
        """The container or init container of that name.

        Raises:
            KeyError: There is none.
        """
        return {one.name: one for one in (*self.init_containers, *self.containers)}[name]


def parse_pod(document: Object) -> Pod:
    """A pod from the API server's JSON."""
    meta, spec, status = document["metadata"], document["spec"], document.get("status") or {}
    seen = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return Pod(
        uid=meta["uid"],
        namespace=meta["namespace"],
        name=meta["name"],
        generation=meta.get("generation", 0),
        labels=meta.get("labels") or {},
        annotations=meta.get("annotations") or {},
        node=spec.get("nodeName", ""),
        service_account=spec.get("serviceAccountName", "default"),
        hostname=(spec.get("hostname") or meta["name"])[:63].rstrip("-."),
        subdomain=spec.get("subdomain", ""),
        host_network=bool(spec.get("hostNetwork")),
        host_aliases=tuple(
            HostAlias(alias["ip"], tuple(alias.get("hostnames") or ())) for alias in spec.get("hostAliases") or ()
        ),
        containers=tuple(_container(one) for one in spec["containers"]),
        init_containers=tuple(_container(one) for one in spec.get("initContainers") or ()),
        volumes={one["name"]: parse_volume(one) for one in spec.get("volumes") or ()},
        restart_policy=spec.get("restartPolicy", "Always"),
        termination_grace=_or(spec.get("terminationGracePeriodSeconds"), 30),
        active_deadline=spec.get("activeDeadlineSeconds"),
        deletion_grace=_or(meta.get("deletionGracePeriodSeconds"), 0) if meta.get("deletionTimestamp") else None,
        phase=status.get("phase", "Pending"),
        reason=status.get("reason", ""),
        ip=status.get("podIP", ""),
        start_time=status.get("startTime", ""),
        conditions={one["type"]: one for one in status.get("conditions") or ()},
        seen={one["name"]: one.get("state") or {} for one in seen},
        not_honoured=_set(spec, "securityContext", "runtimeClassName", "shareProcessNamespace", "dnsConfig", "hostPID"),
    )


def _container(document: Object) -> Container:
    resources = document.get("resources") or {}
    return Container(
        name=document["name"],
        image=document.get("image", ""),
        command=tuple(document.get("command") or ()),
        args=tuple(document.get("args") or ()),
        working_dir=document.get("workingDir", ""),
        env=tuple(_env(one) for one in document.get("env") or ()),
        env_from=tuple(_env_from(one) for one in document.get("envFrom") or ()),
        mounts=tuple(_mount(one) for one in document.get("volumeMounts") or ()),
        limits=resources.get("limits") or {},
        requests=resources.get("requests") or {},
        message_path=document.get("terminationMessagePath", "/dev/termination-log"),
        message_from_logs=document.get("terminationMessagePolicy") == "FallbackToLogsOnError",
        restart_policy=document.get("restartPolicy", ""),
        not_honoured=_set(
            document, "securityContext", "lifecycle", "livenessProbe", "readinessProbe", "startupProbe", "volumeDevices"
        ),
    )


def _env(document: Object) -> EnvVar:
    source: FieldRef | ResourceRef | KeyRef | None = None
    match document.get("valueFrom") or {}:
        case {"fieldRef": ref}:
            source = FieldRef(ref["fieldPath"])
        case {"resourceFieldRef": ref}:
            source = parse_resource_ref(ref)
        case {"configMapKeyRef": ref}:
            source = KeyRef("configmap", ref.get("name", ""), ref["key"], bool(ref.get("optional")))
        case {"secretKeyRef": ref}:
            source = KeyRef("secret", ref.get("name", ""), ref["key"], bool(ref.get("optional")))
    return EnvVar(document["name"], document.get("value") or "", source)


def parse_resource_ref(ref: Object) -> ResourceRef:
    """A `resourceFieldRef`, of an env entry or of a downward API file."""
    return ResourceRef(ref.get("containerName", ""), ref["resource"], str(ref.get("divisor") or "0"))


def _env_from(document: Object) -> EnvFrom:
    kind = "configmap" if "configMapRef" in document else "secret"
    ref = document["configMapRef"] if kind == "configmap" else document["secretRef"]
    return EnvFrom(kind, ref.get("name", ""), document.get("prefix", ""), bool(ref.get("optional")))


def _mount(document: Object) -> VolumeMount:
    return VolumeMount(
        volume=document["name"],
        path=document["mountPath"],
        sub_path=document.get("subPath", ""),
        sub_path_expr=document.get("subPathExpr", ""),
        read_only=bool(document.get("readOnly")),
    )


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _set(document: Object, *names: str) -> tuple[str, ...]:
    return tuple(name for name in names if document.get(name))
