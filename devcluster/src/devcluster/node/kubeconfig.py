"""A kubeconfig, read into what the client needs."""

from __future__ import annotations

import base64
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from devcluster.node.errors import NodeError


@dataclass(frozen=True)
class Access:
    """Where the API server is and how it knows us.

    Attributes:
        server: Its URL, without a slash at the end.
        tls: Trusts its certificate, shows ours if we have one.
        token: Bearer token; empty when a certificate is used.
    """

    server: str
    tls: ssl.SSLContext
    token: str

    @property
    def host(self) -> str:
        """The API server's address."""
        return urlsplit(self.server).hostname or "127.0.0.1"

    @property
    def port(self) -> int:
        """The API server's port."""
        return urlsplit(self.server).port or 443


def load(path: Path) -> Access:
    """Reads the current context of a kubeconfig.

    Raises:
        NodeError: It cannot be read, or names no cluster or no user.
    """
    try:
        document = yaml.safe_load(path.read_text())
        named = {kind: {entry["name"]: entry for entry in document[kind]} for kind in ("contexts", "clusters", "users")}
        context = named["contexts"][document["current-context"]]["context"]
        cluster = named["clusters"][context["cluster"]]["cluster"]
        user = named["users"][context["user"]]["user"]
        server = cluster["server"].rstrip("/")
    except (OSError, yaml.YAMLError, KeyError, TypeError) as error:
        raise NodeError(f"{path} is not a usable kubeconfig: {error!r}") from None
    tls = ssl.create_default_context(cadata=_content(path, cluster, "certificate-authority"))
    certificate, key = _content(path, user, "client-certificate"), _content(path, user, "client-key")
    if certificate and key:
        with tempfile.NamedTemporaryFile("w") as both:  # the ssl module reads keys from files only
            both.write(certificate + "\n" + key)
            both.flush()
            tls.load_cert_chain(both.name)
    return Access(server, tls, user.get("token", ""))


def _content(path: Path, section: dict[str, Any], name: str) -> str | None:
    if f"{name}-data" in section:
        return base64.b64decode(str(section[f"{name}-data"])).decode()
    if name in section:
        return (path.parent / str(section[name])).read_text()
    return None
