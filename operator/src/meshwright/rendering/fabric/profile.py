"""A fabric profile: what an administrator says that the pods of a cluster, or of a part of it, need.

What RDMA needs follows from no formula: `rdma/ib: 1` is one slot that gives all adapters on some clouds, and one
adapter of eight on others. So all of it is configuration, and a profile is data.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import Field

from meshwright_api.base import ApiModel
from meshwright_api.spec import DNS_LABEL, FreeForm

CLIQUE_LABEL: Final = "nvidia.com/gpu.clique"
"""Label of a node: the NVLink domain (cluster UUID and clique) that its GPUs are in."""


class Expression(ApiModel):
    """One condition on the labels of a node."""

    key: Annotated[str, Field(min_length=1)]
    operator: Annotated[str, Field(pattern="^(In|NotIn|Exists|DoesNotExist|Gt|Lt)$")]
    values: tuple[str, ...] = ()


class NodeSelector(ApiModel):
    """Which nodes a profile is for; all conditions must hold."""

    match_labels: Mapping[str, str] = Field(default_factory=dict)
    match_expressions: tuple[Expression, ...] = ()


class Nics(ApiModel):
    """Network adapters of which each pod gets some for itself, every one by a network of its own."""

    resource: Annotated[str, Field(min_length=1)]
    """Extended resource that counts them: `nvidia.com/mlnxnics`."""
    count: Annotated[int, Field(ge=1, le=64)]
    """Adapters for each pod."""
    networks: Annotated[tuple[str, ...], Field(min_length=1, max_length=64)]
    """NetworkAttachmentDefinitions, `NAMESPACE/NAME`: one for all adapters, or one for each, in their order."""


class Profile(ApiModel):
    """One profile, with its preset worked in."""

    name: Annotated[str, Field(min_length=1, max_length=63, pattern=DNS_LABEL)]
    """What `spec.profile` says."""
    nodes: NodeSelector | None = None
    """The nodes it is for; empty for all. A job that names no profile gets the first one that is for every node that
    could take its pods. Without `nodes` a job gets it by its name alone."""
    image: str | None = None
    """Image of containers that name none: the built-in trainer's, as a rule."""
    resources: Mapping[str, str | int] = Field(default_factory=dict)
    """Limits of the trained container by extended resource: `{rdma/ib: 1}`."""
    nics: Nics | None = None
    """Adapters that pods get for themselves."""
    annotations: Mapping[str, str] = Field(default_factory=dict)
    """Annotations of pods."""
    capabilities: tuple[str, ...] = ()
    """Capabilities of the trained container: `[IPC_LOCK]`."""
    shared_memory: str | None = None
    """Size of /dev/shm; it counts to the container's memory limit."""
    huge_pages: Mapping[Annotated[str, Field(pattern="^hugepages-")], str] = Field(default_factory=dict)
    """Huge pages of the trained container: `{hugepages-2Mi: 5120Mi}`; mounted at /dev/hugepages."""
    host_network: bool = False
    """Whether pods use their node's network; ports are then given out so that gangs on one node do not collide."""
    env: Mapping[str, str] = Field(default_factory=dict)
    """Variables of the trained container. What the job says itself wins."""
    compute_domain: bool = False
    """Whether the pods of each NVLink domain share a ComputeDomain (`resource.nvidia.com/v1beta1`)."""
    template: FreeForm = Field(default_factory=dict)
    """Pod template that is laid under the job's: `metadata` and `spec`; its container `trainer` is the trained one."""

    @property
    def expressions(self) -> tuple[dict[str, Any], ...]:
        """The conditions on nodes, as a nodeSelectorTerm has them."""
        nodes = self.nodes or NodeSelector()
        labels = ({"key": key, "operator": "In", "values": [value]} for key, value in nodes.match_labels.items())
        others = (expression.model_dump(exclude_defaults=True) for expression in nodes.match_expressions)
        found = [*labels, *({**e, "values": list(e["values"])} if "values" in e else e for e in others)]
        if self.compute_domain and CLIQUE_LABEL not in {expression["key"] for expression in found}:
            found.append({"key": CLIQUE_LABEL, "operator": "Exists"})
        return tuple(found)
