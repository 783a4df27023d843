"""ComputeDomains: what lets pods on different nodes of one NVLink domain map each other's memory.

A domain must outlive its pods, so unlike everything else of a gang it has no owner whose deletion would take it along:
it is deleted by name, when no pod remains.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from meshwright.placement.model import Member
from meshwright.rendering.objects import labels
from meshwright.rendering.perpod import PerPod
from meshwright_api import names
from meshwright_api.job import Metadata

KIND: Final = "ComputeDomain"
API_VERSION: Final = "resource.nvidia.com/v1beta1"
_CLAIM: Final = "meshwright-compute-domain"


def domain_names(job: Metadata, nodes: Mapping[Member, str], cliques: Mapping[str, str]) -> dict[Member, str]:
    """Name of the domain of every pod: one for each job and NVLink domain.

    Args:
        job: whose pods they are.
        nodes: where the pods go.
        cliques: NVLink domain of each of those nodes.
    """
    by_clique = {clique: names.compute_domain_name(job.name, job.uid, clique) for clique in set(cliques.values())}
    return {member: by_clique[cliques[node]] for member, node in nodes.items() if node in cliques}


def compute_domains(job: Metadata, domains: Iterable[str]) -> list[dict[str, Any]]:
    """The domains, each with the claim template that its driver makes for it."""
    return [
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": name, "namespace": job.namespace, "labels": labels(job)},
            # 0: as many nodes as pods come to; the gang's size is ours to see to.
            "spec": {"numNodes": 0, "channel": {"resourceClaimTemplate": {"name": name}}},
        }
        for name in sorted(set(domains))
    ]


def joined(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The pod's claims with one on a channel of its domain."""
    claim = {"name": _CLAIM, "resourceClaimTemplateName": PerPod("{compute_domain}")}
    return [*(pod.get("resourceClaims") or ()), claim]


def opened(container: Mapping[str, Any]) -> dict[str, Any]:
    """The container with the channel in it."""
    resources = container.get("resources") or {}
    return {**container, "resources": {**resources, "claims": [*(resources.get("claims") or ()), {"name": _CLAIM}]}}
