"""What the proxy understands of a request to an API server."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

_VERBS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

UNCOUNTED: Final = frozenset({"leases", "selfsubjectaccessreviews", "tokenreviews"})
"""Mutating calls that are no points of a crash sweep: reviews change nothing, and renewals come by the clock.

Taking the lease, once per term, is swept by itself."""


@dataclass(frozen=True, slots=True)
class Call:
    """One request.

    Attributes:
        number: Its place in the order of arrival at this proxy.
        method: HTTP method.
        target: Path and query as they were sent.
        verb: `get`, `list`, `watch`, `create`, `update`, `patch` or `delete`; empty for what is no resource.
        resource: Plural name; empty for discovery and the like.
        subresource: `status`, ...
        namespace: Empty for cluster-scoped resources and for lists over all namespaces.
        name: Empty for collections.
        query: Its query parameters.
    """

    number: int
    method: str
    target: str
    verb: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, number: int, method: str, target: str) -> Call:
        """Reads a request line."""
        url = urlsplit(target)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        parts = [unquote(part) for part in url.path.split("/") if part]
        skip = {"api": 2, "apis": 3}.get(parts[0] if parts else "", 0)
        rest = parts[skip:] if skip else []
        namespace = ""
        if len(rest) >= 3 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        resource, name, subresource = (*rest, "", "", "")[:3]
        verb = _VERBS.get(method, "")
        if method == "GET" and resource:
            verb = "get" if name else "watch" if query.get("watch") in ("1", "true") else "list"
        return cls(number, method, target, verb if resource else "", resource, subresource, namespace, name, query)

    @property
    def mutating(self) -> bool:
        """Whether it changes something if it is carried out."""
        return self.method in _VERBS

    @property
    def counted(self) -> bool:
        """Whether a crash sweep counts it."""
        return self.mutating and bool(self.resource) and self.resource not in UNCOUNTED

    @property
    def path(self) -> str:
        """Its target without the query: the address of the object or of the collection."""
        return self.target.partition("?")[0]

    def __str__(self) -> str:
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        return f"{self.verb or self.method} {what or self.path} {self.name}".strip()
