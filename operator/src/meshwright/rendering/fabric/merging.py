"""Two templates into one: what the upper one says stands, and what it leaves open comes from the lower one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_KEYS: Final[Mapping[str, str]] = {
    "containers": "name",
    "initContainers": "name",
    "env": "name",
    "volumes": "name",
    "volumeMounts": "mountPath",
    "imagePullSecrets": "name",
    "hostAliases": "ip",
    "resourceClaims": "name",
    "claims": "name",
    "ports": "name",
}
"""By what the items of a list are told apart; of two with the same key the upper one stands, whole."""
_ADDED: Final = frozenset({"tolerations", "add", "drop", "envFrom", "topologySpreadConstraints", "readinessGates"})
"""Lists of which both count. Of `envFrom` the later wins in Kubernetes, so the upper one's come last."""


def laid_over(upper: Mapping[str, Any], lower: Mapping[str, Any]) -> dict[str, Any]:
    """The upper template over the lower one; null says nothing, as everywhere in Kubernetes."""
    merged = {key: value for key, value in lower.items() if value is not None}
    for key, value in upper.items():
        if value is None:
            continue
        below = merged.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            merged[key] = laid_over(value, below)
        elif isinstance(value, list | tuple) and isinstance(below, list | tuple):
            merged[key] = _lists(key, list(value), list(below))
        else:
            merged[key] = value
    return merged


def _lists(name: str, upper: list[Any], lower: list[Any]) -> list[Any]:
    if name in _ADDED:
        return [*(item for item in lower if item not in upper), *upper]
    key = _KEYS.get(name)
    if key is None:
        return upper
    said = {item.get(key) for item in upper if isinstance(item, Mapping)}
    return [*(item for item in lower if item.get(key) not in said), *upper]
