"""Runs a program in an image's files as a kubelet's runtime does under Pod Security `restricted`: by runc, as the
image's user, without capabilities, and on a root that cannot be written."""

from __future__ import annotations

import json
import subprocess
import tarfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True)
class Image:
    """An image that was built: its archive, what it says of itself, its files, and its name."""

    archive: Path
    config: Json
    root: Path
    reference: str


def configuration(archive: Path) -> Json:
    """What the image says of itself: user, variables, entry point, labels."""
    with tarfile.open(archive) as opened:
        [manifest] = json.load(_member(opened, "manifest.json"))
        found: Json = json.load(_member(opened, manifest["Config"]))["config"]
    return found


def names(archive: Path) -> list[str]:
    with tarfile.open(archive) as opened:
        [manifest] = json.load(_member(opened, "manifest.json"))
    found: list[str] = manifest["RepoTags"]
    return found


def _member(opened: tarfile.TarFile, name: str) -> Any:
    member = opened.extractfile(name)
    assert member is not None
    return member


def run(
    image: Image,
    bundle: Path,
    arguments: Sequence[str] = (),
    *,
    command: Sequence[str] = (),
    volumes: Mapping[str, Path] | None = None,
    seconds: float = 120,
) -> subprocess.CompletedProcess[str]:
    """Runs the image's entry point with these arguments, or a command instead of it, as Kubernetes' pods do.

    Args:
        image: whose files and settings it gets.
        bundle: a folder to make.
        arguments: `args` of a container.
        command: `command` of a container.
        volumes: folders by the path where they are mounted writable.
        seconds: after which it is killed.
    """
    user, group = map(int, image.config["User"].split(":"))
    tmpfs = ["nosuid", "nodev", "mode=1777"]
    mounts = [
        {"destination": "/proc", "type": "proc", "source": "proc"},
        {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
        {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": tmpfs},
        {"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": tmpfs},
    ]
    for path, folder in (volumes or {}).items():
        mounts.append({"destination": path, "type": "bind", "source": str(folder), "options": ["rbind", "rw"]})
    specification = {
        "ociVersion": "1.0.2",
        "process": {
            "user": {"uid": user, "gid": group},
            "args": [*(command or image.config["Entrypoint"]), *arguments],
            "env": [*image.config["Env"], "OMP_NUM_THREADS=1"],
            "cwd": image.config["WorkingDir"],
            "capabilities": {},
            "noNewPrivileges": True,
        },
        "root": {"path": str(image.root), "readonly": True},
        "hostname": "sandbox",
        "mounts": mounts,
        # With a network of its own it has none.
        "linux": {"namespaces": [{"type": kind} for kind in ("pid", "ipc", "uts", "mount", "network")]},
    }
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text(json.dumps(specification))
    name = f"meshwright-test-{uuid.uuid4().hex[:8]}"
    try:
        return subprocess.run(
            ["runc", "run", "--bundle", str(bundle), name],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=seconds,
        )  # fmt: skip
    finally:
        subprocess.run(["runc", "delete", "--force", name], capture_output=True, check=False)
