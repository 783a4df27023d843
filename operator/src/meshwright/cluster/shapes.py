"""Which parts of objects are read: the rest of a document is passed over without becoming objects of this process.

Half of a pod is bookkeeping of the API server, and most of the rest is nobody's business here. At tens of thousands of
pods, making dicts of it is most of the work of a watch, and of the memory of a list.
"""

from __future__ import annotations

from typing import Any, Final, TypedDict

import msgspec

from meshwright_api import names

Annotations = TypedDict("Annotations", {names.ANNOTATION_CONTAINER: Any}, total=False)  # type: ignore[misc]
"""The one that is read; the others of a pod may be long."""


class Metadata(TypedDict, total=False):
    """Of any object."""

    name: Any
    namespace: Any
    uid: Any
    resourceVersion: Any
    labels: Any
    annotations: Annotations
    ownerReferences: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any


class Port(TypedDict, total=False):
    """A port of a container."""

    containerPort: Any
    hostPort: Any
    hostIP: Any
    protocol: Any


class Container(TypedDict, total=False):
    """What a container asks for."""

    name: Any
    resources: Any
    ports: list[Port]
    restartPolicy: Any


class PodSpec(TypedDict, total=False):
    """What a pod holds of its node."""

    nodeName: Any
    containers: list[Container]
    initContainers: list[Container]
    resources: Any
    overhead: Any
    affinity: Any
    hostNetwork: Any


class PodShape(TypedDict, total=False):
    """A Pod, as `project_pod` reads it."""

    metadata: Metadata
    spec: PodSpec
    status: Any


class NodeSpec(TypedDict, total=False):
    """Who may come to a node."""

    taints: Any
    unschedulable: Any


class NodeStatus(TypedDict, total=False):
    """What a node offers, and how it is."""

    allocatable: Any
    conditions: Any


class NodeShape(TypedDict, total=False):
    """A Node, as `project_node` reads it."""

    metadata: Metadata
    spec: NodeSpec
    status: NodeStatus


class Named(TypedDict, total=False):
    """An object of which only its metadata matter."""

    metadata: Metadata


class Reader:
    """Reads documents of one shape. What does not have it is read whole: whoever looks at it judges it."""

    def __init__(self, shape: Any) -> None:
        self._decode = msgspec.json.Decoder(shape).decode

    def read(self, document: bytes) -> Any:
        """The parts of a document that are in the shape.

        Raises:
            ValueError: it is no JSON.
        """
        try:
            return self._decode(document)
        except msgspec.ValidationError:
            if self is WHOLE:
                raise
            return WHOLE.read(document)
        except RecursionError as error:
            raise ValueError("nested too deeply") from error


WHOLE: Final = Reader(Any)
"""Reads all there is."""


def page_of(shape: Any) -> Any:
    """The shape of a list of such objects."""
    return TypedDict("Page", {"metadata": Any, "items": list[shape]}, total=False)  # type: ignore[operator]


def event_of(shape: Any) -> Any:
    """The shape of an event of a watch."""
    return TypedDict("Event", {"type": Any, "object": shape})  # type: ignore[operator]
