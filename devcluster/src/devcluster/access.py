"""Who may talk to a cluster, and talking to it: tokens, kubeconfigs, single requests."""

from __future__ import annotations

import base64
import json
import secrets
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devcluster.errors import ApiError
from devcluster.settings import ADMIN, Layout

CONTROLLERS, SCHEDULER = "system:kube-controller-manager", "system:kube-scheduler"
NODES = "devcluster-nodes"
_MASTERS = {ADMIN, NODES}


@dataclass(frozen=True)
class Others:
    """Further static users.

    Attributes:
        groups: The group of each, "" for none.
        server: The API server's URL where they are.
    """

    groups: Mapping[str, str]
    server: str


def write_credentials(layout: Layout, server: str, others: Others | None = None) -> None:
    """Writes a token per static user and a kubeconfig for each.

    Args:
        layout: Where.
        server: The API server's URL.
        others: Users beside the control plane's own.
    """
    groups = {user: "system:masters" if user in _MASTERS else "" for user in (ADMIN, CONTROLLERS, SCHEDULER, NODES)}
    servers = dict.fromkeys(groups, server)
    if others:
        groups |= others.groups
        servers |= dict.fromkeys(others.groups, others.server)
    tokens = {user: secrets.token_hex(16) for user in groups}
    lines = [f"{token},{user},{user}" + (f",{groups[user]}" if groups[user] else "") for user, token in tokens.items()]
    write_private(layout.directory / "tokens.csv", "\n".join(lines) + "\n")
    for user, token in tokens.items():
        write_kubeconfig(layout.kubeconfig(user), servers[user], layout.ca, user, token)


def write_kubeconfig(path: Path, server: str, ca: Path, user: str, token: str, namespace: str = "default") -> None:
    """Writes a kubeconfig (JSON is YAML) that only its owner can read; it is whole, so it may be copied."""
    authority = base64.b64encode(ca.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "devcluster",
        "clusters": [{"name": "devcluster", "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [
            {"name": "devcluster", "context": {"cluster": "devcluster", "user": user, "namespace": namespace}}
        ],
    }
    write_private(path, json.dumps(config, indent=1))


def write_private(path: Path, text: str) -> None:
    """Writes a file that nobody else may read, at no moment."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)


def request(url: str, ca: Path, token: str, method: str = "GET", body: Any = None) -> bytes:
    """One request to a program of the cluster, past every proxy that the environment names. PATCH is a merge patch.

    Raises:
        ApiError: It was refused.
        OSError: There was no answer.
    """
    context = ssl.create_default_context(cafile=str(ca))
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": kind}
    data = None if body is None else json.dumps(body).encode()
    try:
        with opener.open(urllib.request.Request(url, data, headers, method=method), timeout=30) as answer:
            return bytes(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            raise ApiError(method, url, error.code, error.read().decode(errors="replace")) from None


def answers(url: str, layout: Layout) -> bool:
    """Whether a GET as the administrator succeeds."""
    try:
        request(url, layout.ca, read_token(layout, ADMIN))
    except (OSError, ApiError):
        return False
    return True


def read_token(layout: Layout, user: str) -> str:
    """The token of a static user."""
    config = json.loads(layout.kubeconfig(user).read_text())
    return str(config["users"][0]["user"]["token"])
