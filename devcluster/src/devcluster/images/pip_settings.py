"""How pip on this machine reaches a package index, for pip in a build: lent to single steps, never part of an image."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CERTIFICATES: Final = "/run/secrets/pip-ca.pem"
"""Where a build finds the certificates that its index is checked by."""
_SECTIONS: Final = ("global", "install", ":env:")
"""Of pip's configuration, the later ones win."""
_KEYS: Final = ("index-url", "extra-index-url", "find-links", "no-index", "trusted-host", "proxy", "timeout", "retries")
_SAME_IN_UV: Final = {
    "UV_DEFAULT_INDEX": "index-url",
    "UV_INDEX_URL": "index-url",
    "UV_INDEX": "extra-index-url",
    "UV_EXTRA_INDEX_URL": "extra-index-url",
    "UV_FIND_LINKS": "find-links",
    "UV_INSECURE_HOST": "trusted-host",
}
"""Variables of uv that say the same; they count where pip is told nothing."""
_CERTIFICATE_VARIABLES: Final = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True, slots=True)
class PipSettings:
    """What is lent to a build."""

    text: str
    """A pip.conf."""
    certificates: Path | None
    """A file of certificates to trust, or None for those that come with pip."""
    folders: tuple[Path, ...]
    """Local folders that packages may come from; a build sees them at the same paths, read-only."""


def pip_settings(configured: Mapping[str, str], environment: Mapping[str, str]) -> PipSettings:
    """The settings for a build.

    Args:
        configured: what `pip config list` says, such as `{"global.index-url": "https://..."}`.
        environment: variables of this machine, for those of uv and of OpenSSL.
    """
    chosen = _chosen(configured)
    for variable, key in _SAME_IN_UV.items():
        if environment.get(variable):
            chosen.setdefault(key, " ".join(_without_name(word) for word in environment[variable].split()))
    certificates = chosen.get("cert") or next(filter(None, map(environment.get, _CERTIFICATE_VARIABLES)), None)
    lines = ["[global]"]
    if certificates:
        lines.append(f"cert = {CERTIFICATES}")
    # A list may stand on one line each, and then has to be indented.
    lines += [f"{key} = " + "\n    ".join(chosen[key].split()) for key in _KEYS if chosen.get(key)]
    places = [Path(word.removeprefix("file://")) for word in chosen.get("find-links", "").split()]
    folders = tuple(place for place in places if place.is_absolute() and place.is_dir())
    return PipSettings("\n".join(lines) + "\n", Path(certificates) if certificates else None, folders)


def configured() -> dict[str, str]:
    """What pip of this Python is configured to do, by files and by variables; nothing without pip."""
    argv = [sys.executable, "-m", "pip", "config", "list"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=os.environ | {"PIP_NO_COLOR": "1"})
    pairs = (line.partition("=") for line in done.stdout.splitlines() if "=" in line)
    return {key: str(ast.literal_eval(value)) for key, _, value in pairs}


def _chosen(configured: Mapping[str, str]) -> dict[str, str]:
    chosen: dict[str, str] = {}
    for section in _SECTIONS:
        for name, value in configured.items():
            if name.startswith(f"{section}."):
                key = name.removeprefix(f"{section}.").replace("_", "-")
                chosen["timeout" if key == "default-timeout" else key] = value
    return chosen


def _without_name(index: str) -> str:
    """An index of uv may be written `name=https://...`."""
    name, separator, url = index.partition("=")
    return url if separator and "/" not in name else index
