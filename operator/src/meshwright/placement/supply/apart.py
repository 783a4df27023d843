"""Pods that want no other of their own kind on their node: required anti-affinity to what they are themselves.

It is counted like a resource of which every node has one, so it holds for whatever counts resources: places, the queue,
reservations, the pods of other gangs of that kind. Anti-affinity to anything else, or within larger domains than a
node, depends on where other pods happen to be; there kube-scheduler has the last word.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from meshwright.placement.supply.eligibility import Requirement, requirements
from meshwright.placement.supply.resources import NOTHING, ONE_EACH, Resources

_HOSTNAME: Final = "kubernetes.io/hostname"


def apart(pod: Mapping[str, Any]) -> Resources:
    """What a pod, or a pod template, asks of its node so that no other of its kind is there."""
    affinity = ((pod.get("spec") or {}).get("affinity") or {}).get("podAntiAffinity") or {}
    terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not terms:
        return NOTHING
    metadata = pod.get("metadata") or {}
    labels = metadata.get("labels") or {}
    found = {ONE_EACH + text for term in terms if (text := _of_its_own(term, labels, metadata.get("namespace")))}
    return Resources.of(dict.fromkeys(found, 1))


def _of_its_own(term: Mapping[str, Any], labels: Mapping[str, str], namespace: str | None) -> str:
    """The pods that the term keeps away, in words, if the pod itself is one of them; else empty."""
    selector, given, chosen = term.get("labelSelector"), term.get("namespaces"), term.get("namespaceSelector")
    here = namespace in given if given else not chosen
    if term.get("topologyKey") != _HOSTNAME or selector is None or not here or term.get("mismatchLabelKeys"):
        return ""
    labelled = selector.get("matchLabels") or {}
    alike = [(key, labels[key]) for key in term.get("matchLabelKeys") or () if key in labels]
    wanted = [Requirement(key, "In", (value,)) for key, value in (*labelled.items(), *alike)]
    wanted += requirements(selector.get("matchExpressions"))
    if not all(requirement.holds(labels) for requirement in wanted):
        return ""
    return "pods with " + ", ".join(sorted(map(_text, wanted))) if wanted else "other pods"


def _text(requirement: Requirement) -> str:
    key, operator, values = requirement.key, requirement.operator, sorted(requirement.values)
    if operator == "In" and len(values) == 1:
        return f"{key}={values[0]}"
    return f"{key} {operator} {', '.join(values)}".rstrip()
