"""The NetworkPolicy of a gang: only its own pods may open connections to its pods.

A rendezvous has no authentication: whoever reaches it can join, and torch runs what its peers send. Policies add up, so
a user who wants more of the gang's pods to be reachable adds a policy; this one never has to be changed for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from meshwright.rendering.objects import labels, owned
from meshwright_api import names
from meshwright_api.job import Metadata

METRICS_PORT_NAME: Final = "metrics"
"""The port of a pod that scrapers may reach, whatever its number."""


def network_policy(job: Metadata, scrapers: Iterable[Mapping[str, Any]] = ()) -> dict[str, Any]:
    """The policy of a job, one for all its incarnations.

    Args:
        job: whose pods it is for.
        scrapers: NetworkPolicyPeers that may reach the port called `metrics`, beside the job's own pods.
    """
    gang = {"matchLabels": {names.LABEL_JOB_UID: job.uid}}
    # Without a namespaceSelector the peers are pods of the policy's own namespace.
    ingress: list[dict[str, Any]] = [{"from": [{"podSelector": gang}]}]
    if peers := [dict(peer) for peer in scrapers]:
        ingress.append({"from": peers, "ports": [{"protocol": "TCP", "port": METRICS_PORT_NAME}]})
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": owned(job, names.gang_name(job.name, job.uid)) | {"labels": labels(job)},
        "spec": {"podSelector": gang, "policyTypes": ["Ingress"], "ingress": ingress},
    }


def isolates(pods: Iterable[Mapping[str, Any]]) -> bool:
    """Whether a policy can be for a gang of these pods.

    Pods on the host's network are known by their node's address, which no selector finds: a policy would keep them from
    those of their peers that are not.
    """
    return not any(pod["spec"].get("hostNetwork") for pod in pods)
