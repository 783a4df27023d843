"""Names that pods see: what cluster DNS would answer, as lines of /etc/hosts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from devcluster.node.model import Pod

DOMAIN: Final = "cluster.local"
_HEADER: Final = """\
# Kubernetes-managed hosts file.
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


@dataclass(frozen=True)
class HeadlessService:
    """A Service without an address of its own, whose pods have names."""

    namespace: str
    name: str
    selector: Mapping[str, str]
    publish_not_ready: bool

    def selects(self, pod: Pod) -> bool:
        """Whether the pod is one of its own."""
        return bool(self.selector) and self.namespace == pod.namespace and self.selector.items() <= pod.labels.items()


@dataclass(frozen=True)
class Record:
    """One pod's address under one Service.

    Attributes:
        host: The pod's own name below the Service's; empty if it has none there.
    """

    namespace: str
    service: str
    host: str
    address: str

    def names(self, asking_namespace: str) -> tuple[str, ...]:
        """The names by which a pod of a namespace reaches it, longest first: what DNS and its search path give."""
        result = []
        for base in filter(None, (f"{self.host}.{self.service}" if self.host else "", self.service)):
            there = f"{base}.{self.namespace}"
            result += [f"{there}.svc.{DOMAIN}", f"{there}.svc", there]
            if asking_namespace == self.namespace:
                result.append(base)
        return tuple(result)


def parse_service(document: Mapping[str, Any]) -> HeadlessService | None:
    """A Service from the API server's JSON; None if it is not headless."""
    spec, meta = document["spec"], document["metadata"]
    if spec.get("clusterIP") != "None":
        return None
    publish = bool(spec.get("publishNotReadyAddresses"))
    return HeadlessService(meta["namespace"], meta["name"], spec.get("selector") or {}, publish)


def records(pods: Iterable[Pod], services: Iterable[HeadlessService]) -> tuple[Record, ...]:
    """What there is to resolve: pods that have an address, are not finished, and are ready where that matters."""
    by_namespace: dict[str, list[HeadlessService]] = {}
    for service in services:
        by_namespace.setdefault(service.namespace, []).append(service)
    found = [
        Record(pod.namespace, service.name, pod.hostname if pod.subdomain == service.name else "", pod.ip)
        for pod in pods
        if pod.ip and not pod.finished
        for service in by_namespace.get(pod.namespace, ())
        if service.selects(pod) and (service.publish_not_ready or _ready(pod))
    ]
    return tuple(sorted(found, key=lambda one: (one.namespace, one.service, one.host, one.address)))


def _ready(pod: Pod) -> bool:
    return pod.deletion_grace is None and pod.conditions.get("Ready", {}).get("status") == "True"


def hosts_file(pod: Pod, address: str, peers: Iterable[Record], api_host: str) -> str:
    """The pod's /etc/hosts: a kubelet's, and below it what DNS would know."""
    fully = f"{pod.hostname}.{pod.subdomain}.{pod.namespace}.svc.{DOMAIN}\t" if pod.subdomain else ""
    lines = [f"{address}\t{fully}{pod.hostname}"]
    if pod.host_aliases:
        lines += ["", "# Entries added by HostAliases."]
        lines += ["\t".join((alias.ip, *alias.names)) for alias in pod.host_aliases]
    api = f"kubernetes.default.svc.{DOMAIN} kubernetes.default.svc kubernetes.default"
    short = " kubernetes" if pod.namespace == "default" else ""
    lines += ["", "# What cluster DNS would answer.", f"{api_host}\t{api}{short}"]
    lines += [f"{peer.address}\t{' '.join(peer.names(pod.namespace))}" for peer in peers]
    return _HEADER + "\n".join(lines) + "\n"


def with_addresses(text: str, pod: Pod, peers: Iterable[Record]) -> tuple[str, frozenset[str]]:
    """For pods without an /etc/hosts of their own: `text` with the gang's names replaced by addresses.

    The gang are the pods of the pod's own subdomain.

    Returns:
        The text, and the names in it that have no address yet.
    """
    if not pod.subdomain:
        return text, frozenset()
    known = {name: peer.address for peer in peers for name in peer.names(pod.namespace)}
    missing: set[str] = set()

    def address(match: re.Match[str]) -> str:
        if match[0] not in known:
            missing.add(match[0])
        return known.get(match[0], match[0])

    tail = rf"(?:\.{re.escape(pod.namespace)}(?:\.svc(?:\.{re.escape(DOMAIN)})?)?)?"
    name = rf"(?<![\w.-])[a-z0-9-]+\.{re.escape(pod.subdomain)}{tail}(?![\w.-])"
    return re.sub(name, address, text), frozenset(missing)
