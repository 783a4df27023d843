"""The kinds of objects that the operator touches, and their addresses on the API server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from meshwright_api import names


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind of object: enough to build paths, to ask for rights, and to label metrics."""

    group: str
    version: str
    plural: str
    namespaced: bool = True

    @property
    def root(self) -> str:
        """`/api/v1` or `/apis/<group>/<version>`."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str | None = None, name: str | None = None, subresource: str | None = None) -> str:
        """Address of one object, or of the collection (of all namespaces when none is given)."""
        parts = [self.root]
        if self.namespaced and namespace is not None:
            parts += ["namespaces", quote(namespace, safe="")]
        parts.append(self.plural)
        if name is not None:
            parts.append(quote(name, safe=""))
        if subresource is not None:
            parts.append(subresource)
        return "/".join(parts)


TRAININGJOBS: Final = Resource(names.GROUP, names.VERSION, names.PLURAL)
PODS: Final = Resource("", "v1", "pods")
SERVICES: Final = Resource("", "v1", "services")
CONFIGMAPS: Final = Resource("", "v1", "configmaps")
NODES: Final = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False)
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
RESOURCEQUOTAS: Final = Resource("", "v1", "resourcequotas")
SECRETS: Final = Resource("", "v1", "secrets")
NETWORK_POLICIES: Final = Resource("networking.k8s.io", "v1", "networkpolicies")
COMPUTE_DOMAINS: Final = Resource("resource.nvidia.com", "v1beta1", "computedomains")
EVENTS: Final = Resource("events.k8s.io", "v1", "events")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
TOKEN_REVIEWS: Final = Resource("authentication.k8s.io", "v1", "tokenreviews", namespaced=False)
ACCESS_REVIEWS: Final = Resource("authorization.k8s.io", "v1", "selfsubjectaccessreviews", namespaced=False)
