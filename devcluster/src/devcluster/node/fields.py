"""What `fieldRef` and `resourceFieldRef` show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from devcluster.node.errors import NotYet
from devcluster.node.model import Container, Pod
from devcluster.node.quantity import divided

_KEYED = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


@dataclass(frozen=True)
class Site:
    """Where a pod runs: what its spec does not say.

    Attributes:
        allocatable: Of the Node; a limit that is not set shows this.
    """

    pod_ip: str
    host_ip: str
    allocatable: Mapping[str, str]


def field_value(pod: Pod, site: Site, path: str) -> str:
    """The text of a pod's field.

    Raises:
        NotYet: The field is not one that can be shown.
    """
    if keyed := _KEYED.fullmatch(path):
        return (pod.labels if keyed[1] == "labels" else pod.annotations).get(keyed[2], "")
    values = {
        "metadata.name": pod.name,
        "metadata.namespace": pod.namespace,
        "metadata.uid": pod.uid,
        "metadata.labels": _lines(pod.labels),
        "metadata.annotations": _lines(pod.annotations),
        "spec.nodeName": pod.node,
        "spec.serviceAccountName": pod.service_account,
        "status.hostIP": site.host_ip,
        "status.hostIPs": site.host_ip,
        "status.podIP": site.pod_ip,
        "status.podIPs": site.pod_ip,
    }
    if path not in values:
        raise NotYet(f"unsupported fieldPath: {path}", waiting="CreateContainerConfigError", event="Failed")
    return values[path]


def _lines(entries: Mapping[str, str]) -> str:
    return "\n".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in sorted(entries.items()))


def resource_value(container: Container, site: Site, resource: str, divisor: str) -> str:
    """A request or limit in units of the divisor, rounded up.

    A limit that is not set is the node's allocatable amount; a request that is not set is 0, as with a kubelet.
    """
    side, _, name = resource.partition(".")
    if side == "limits":
        quantity = container.limits.get(name) or site.allocatable.get(name, "0")
    else:
        quantity = container.requests.get(name, "0")
    return divided(quantity, divisor)
