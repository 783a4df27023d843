"""The packages of an image against those that constraints.txt pins."""

from __future__ import annotations

import importlib.metadata
import re
from pathlib import Path

from devcluster.images.sources import REPOSITORY


def installed(root: Path) -> dict[str, str]:
    """Versions of the packages in an image's environment by their normalised names."""
    [folder] = root.glob("opt/meshwright/lib/python3*/site-packages")
    found = importlib.metadata.distributions(path=[str(folder)])
    return {re.sub(r"[-_.]+", "-", one.metadata["Name"]).lower(): one.version for one in found}


def pinned() -> set[tuple[str, str]]:
    """(package, version); a package may have several, by version of Python."""
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return {(name, version) for line in lines for name, version in re.findall(r"^([\w.-]+)==(\S+)", line)}
