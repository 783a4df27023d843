"""The part of a pod template that Meshwright itself looks at. The rest is kept as written and judged by the API server.

These types never render a pod (the raw template does); they say what must hold for our checks to make sense.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

from meshwright_api import reserved
from meshwright_api.base import ApiModel
from meshwright_api.quantity import whole
from meshwright_api.spec import FreeForm

_TORCHRUN = re.compile(r"(^|[\s/;&|(])torchrun($|[\s;&|)])|torch\.distributed\.(run|launch)($|[\s;&|)])")

AnyValues = Annotated[Mapping[str, Any], Field(json_schema_extra={"additionalProperties": True})]
Texts = Annotated[Mapping[str, str], Field(json_schema_extra={"additionalProperties": {"type": "string"}})]


class EnvVar(ApiModel):
    """An environment variable."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the variable. Those that say where a process stands (RANK, MASTER_*, PET_*, ...) are ours to set."""


class VolumeMount(ApiModel):
    """A volume mounted in a container."""

    name: str
    """Name of the volume."""
    mount_path: str
    """Path in the container."""


class Resources(ApiModel):
    """What a container asks for."""

    limits: AnyValues | None = None
    """Limits by resource name. `nvidia.com/gpu` must agree with gpusPerPod, or be left out."""
    requests: AnyValues | None = None
    """Requests by resource name."""


class Capabilities(ApiModel):
    """What a container may do beside what all may."""

    add: tuple[str, ...] = ()
    """Capabilities to add."""
    drop: tuple[str, ...] = ()
    """Capabilities to take away."""


class SecurityContext(ApiModel):
    """With which rights a container, or a pod, runs."""

    capabilities: Capabilities | None = None
    """Of a container."""
    seccomp_profile: FreeForm | None = None
    """Which system calls it may use."""


class Container(ApiModel):
    """A container, as in a Pod."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the container. Where there are several, the one named `trainer` is judged."""
    image: str | None = None
    """Image of the container."""
    command: tuple[str, ...] = ()
    """Entry point."""
    args: tuple[str, ...] = ()
    """Arguments."""
    env: tuple[EnvVar, ...] = ()
    """Environment variables."""
    volume_mounts: tuple[VolumeMount, ...] = ()
    """Volumes mounted in the container."""
    resources: Resources | None = None
    """What the container asks for."""
    ports: tuple[FreeForm, ...] = ()
    """Ports, as in a Pod."""
    security_context: SecurityContext | None = None
    """Rights of the container, as in a Pod."""

    @property
    def gpu_limit(self) -> object:
        """The GPU limit as it was written; None if there is none."""
        return (self.resources.limits or {}).get(reserved.GPU) if self.resources else None

    @property
    def gpus(self) -> int | None:
        """Whole GPUs in the limits; None if there is no such limit, or it counts nothing."""
        return whole(self.gpu_limit)

    @property
    def uses_torchrun(self) -> bool:
        """Whether the command starts torchrun, which itself starts a process for each GPU."""
        return any(_TORCHRUN.search(word) for word in (*self.command, *self.args))


class TemplateVolume(ApiModel):
    """A volume of the pod."""

    name: Annotated[str, Field(min_length=1)]
    """Name of the volume."""
    host_path: FreeForm | None = None
    """Source: a folder of the node."""


class Requirement(ApiModel):
    """A condition on a label or a field of a node."""

    key: Annotated[str, Field(min_length=1)]
    """Label, or `metadata.name` among matchFields."""
    operator: Annotated[str, Field(pattern="^(In|NotIn|Exists|DoesNotExist|Gt|Lt)$")]
    """One of In, NotIn, Exists, DoesNotExist, Gt, Lt."""
    values: tuple[str, ...] = ()
    """Values to compare with."""


class NodeSelectorTerm(ApiModel):
    """Conditions that must hold together."""

    match_expressions: tuple[Requirement, ...] = ()
    """Conditions on labels."""
    match_fields: tuple[Requirement, ...] = ()
    """Conditions on fields."""


class NodeSelector(ApiModel):
    """Terms of which one must hold."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], Field(min_length=1)]
    """The terms."""


class NodeAffinity(ApiModel):
    """Nodes that the pods may run on, and those that they would like."""

    required_during_scheduling_ignored_during_execution: NodeSelector | None = None
    """Nodes that the pods may run on."""


class LabelRequirement(ApiModel):
    """A condition on a label of other pods."""

    key: Annotated[str, Field(min_length=1)]
    """Key of the label."""
    operator: Annotated[str, Field(pattern="^(In|NotIn|Exists|DoesNotExist)$")]
    """One of In, NotIn, Exists, DoesNotExist."""
    values: tuple[str, ...] = ()
    """Values to compare with."""


class LabelSelector(ApiModel):
    """Labels of other pods."""

    match_labels: Texts | None = None
    """Labels that they have."""
    match_expressions: tuple[LabelRequirement, ...] = ()
    """Conditions on their labels."""


class PodAffinityTerm(ApiModel):
    """Other pods, and how near is too near."""

    topology_key: Annotated[str, Field(min_length=1)]
    """Label of nodes; pods on nodes of one value are near each other."""
    label_selector: LabelSelector | None = None
    """The other pods."""
    namespaces: tuple[str, ...] = ()
    """Namespaces of the other pods; by default the job's."""
    namespace_selector: LabelSelector | None = None
    """The same by labels."""
    match_label_keys: tuple[str, ...] = ()
    """Labels in which the other pods are like this one."""
    mismatch_label_keys: tuple[str, ...] = ()
    """Labels in which they are not."""


class PodAntiAffinity(ApiModel):
    """Pods that the pods may not be near to, and those that they would rather not be near to."""

    required_during_scheduling_ignored_during_execution: tuple[PodAffinityTerm, ...] = ()
    """Pods that they may not be near to. Where these are pods of their own kind on one node, a gang is placed so."""


class Affinity(ApiModel):
    """Where the pods may run."""

    node_affinity: NodeAffinity | None = None
    """By nodes."""
    pod_anti_affinity: PodAntiAffinity | None = None
    """By other pods."""


class Toleration(ApiModel):
    """A taint that the pods put up with."""

    key: str | None = None
    """Key of the taint."""
    operator: str | None = None
    """Exists or Equal."""
    value: str | None = None
    """Value of the taint."""
    effect: str | None = None
    """Effect of the taint."""


class PodSpec(ApiModel):
    """Spec of the pods, as in a Pod; all of a Pod's fields can be given."""

    containers: tuple[Container, ...] = ()
    """Containers: exactly one, or one of them named `trainer`."""
    init_containers: tuple[Container, ...] = ()
    """Containers that run before, as in a Pod."""
    volumes: tuple[TemplateVolume, ...] = ()
    """Volumes, as in a Pod."""
    node_selector: Texts | None = None
    """Labels of the nodes that the pods may run on."""
    affinity: Affinity | None = None
    """Which nodes the pods may run on, as in a Pod."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the pods put up with, as in a Pod."""
    resources: Resources | None = None
    """What the pod asks for as a whole."""
    security_context: SecurityContext | None = None
    """Rights of the pod, as in a Pod."""
    overhead: AnyValues | None = None
    """What the pod takes beside its containers."""
    restart_policy: str | None = None
    """Always Never: a gang restarts as a whole. May be left out."""
    priority_class_name: str | None = None
    """PriorityClass; must agree with queue.priorityClassName, or be left out."""
    node_name: str | None = None
    """Must be left out: Meshwright places pods."""
    hostname: str | None = None
    """Must be left out: Meshwright sets it."""
    subdomain: str | None = None
    """Must be left out: Meshwright sets it."""
    ephemeral_containers: tuple[FreeForm, ...] | None = None
    """Must be left out."""

    @property
    def trained(self) -> int | None:
        """Position of the container that trains: the only one, or the one named `trainer`; None if neither is there."""
        names = [container.name for container in self.containers]
        if len(names) == 1:
            return 0
        return names.index(reserved.TRAINER) if reserved.TRAINER in names else None


class PodMetadata(ApiModel):
    """Labels and annotations of the pods."""

    labels: Texts | None = None
    """Labels; those that begin with `meshwright.dev/` are ours to set."""
    annotations: Texts | None = None
    """Annotations; those that begin with `meshwright.dev/` are ours to set."""


class PodTemplate(ApiModel):
    """Template of the pods of a role."""

    metadata: PodMetadata = PodMetadata()
    """Labels and annotations of the pods; nothing else can be given."""
    spec: PodSpec = PodSpec()
    """Spec of the pods, as in a Pod; `kubectl explain pod.spec` describes all its fields."""
