"""What a pod asks of its node, counted as kube-scheduler counts it.

Containers run together, so they add up. Ordinary init containers run one after the other before them, so the greatest
one counts; a sidecar (an init container that restarts always) runs on beside everything that starts after it.
What admission adds later (LimitRange defaults, a RuntimeClass's overhead) is only known once the pod exists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from meshwright.placement.supply.apart import apart
from meshwright.placement.supply.host_ports import host_ports
from meshwright.placement.supply.resources import NOTHING, Resources

ONE_POD = Resources(pods=1)


def pod_requests(pod: Mapping[str, Any]) -> Resources:
    """Requests of a pod (or of a pod template, which has no status), including the one pod that it is.

    Host ports, and a place without others of its own kind where a pod wants that, are what every node has only once.

    Raises:
        InvalidQuantity: a request or limit is no quantity.
    """
    spec = pod.get("spec") or {}
    resized = _sizes_in_force(pod.get("status") or {})
    running = _sum(_container(c, resized) for c in spec.get("containers") or ())
    sidecars, peak = NOTHING, NOTHING
    for container in spec.get("initContainers") or ():
        requests = _container(container, resized)
        if container.get("restartPolicy") == "Always":
            sidecars += requests
            peak = peak.most(sidecars)
        else:
            peak = peak.most(sidecars + requests)
    total = _with_pod_level(spec.get("resources") or {}, (running + sidecars).most(peak))
    return total + Resources.parse(spec.get("overhead") or {}) + apart(pod) + host_ports(pod) + ONE_POD


def _sum(amounts: Iterable[Resources]) -> Resources:
    return sum(amounts, NOTHING)


def _container(container: Mapping[str, Any], resized: Mapping[str, Resources]) -> Resources:
    resources = container.get("resources") or {}
    # The API server fills in a missing request from the limit; a template has not been there yet.
    asked = Resources.parse({**(resources.get("limits") or {}), **(resources.get("requests") or {})})
    return asked.most(resized.get(container.get("name", ""), NOTHING))


def _sizes_in_force(status: Mapping[str, Any]) -> dict[str, Resources]:
    """What containers hold after a resize in place: until it is done, the old and the new amount both count."""
    held = {}
    for key in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(key) or ():
            actual = Resources.parse((container.get("resources") or {}).get("requests") or {})
            allocated = Resources.parse(container.get("allocatedResources") or {})
            held[container.get("name", "")] = actual.most(allocated)
    return held


def _with_pod_level(resources: Mapping[str, Any], containers: Resources) -> Resources:
    """Requests and limits of the pod as a whole stand in place of the sum of its containers."""
    by_container = dict(containers.items())
    limits, requests = _pod_level(resources.get("limits")), _pod_level(resources.get("requests"))
    unasked = {name: amount for name, amount in limits.items() if not by_container.get(name)}
    return Resources.of(by_container | unasked | requests)


def _pod_level(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    supported = {
        name: quantity
        for name, quantity in (quantities or {}).items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }
    amounts = dict(Resources.parse(supported).items())
    return {name: amounts.get(name, 0) for name in supported}
