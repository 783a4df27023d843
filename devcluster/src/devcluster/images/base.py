"""The image that ours are built on where no registry is in reach: a small Debian with Python, made by debootstrap."""

from __future__ import annotations

import hashlib
import os
import shutil
from typing import Final

from devcluster.gobuild import Progress, Report
from devcluster.images.buildah import Builder

SUITE: Final = "bookworm"
PACKAGES: Final = ("python3", "python3-venv", "ca-certificates")
MIRROR_VARIABLE: Final = "MESHWRIGHT_DEBIAN_MIRROR"
_MIRROR: Final = "http://deb.debian.org/debian"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_WHAT: Final = "making the base image"
# What a running container has from its runtime, and what only installing needs.
_LEFT_OUT: Final = ("./proc/*", "./sys/*", "./dev/*", "./var/cache/apt/*", "./var/lib/apt/lists/*")
_DOCUMENTATION: Final = ("./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*", "./usr/share/info/*")


def ensure_base(builder: Builder, report: Report) -> str:
    """Makes the base unless the storage has it; returns its name.

    Raises:
        ImageError: it could not be made.
    """
    recipe = " ".join([SUITE, *PACKAGES, *_LEFT_OUT, *_DOCUMENTATION])
    name = f"localhost/meshwright-base:{hashlib.sha256(recipe.encode()).hexdigest()[:16]}"
    if not builder.has(name):
        report(Progress("base image", 0, 0))
        _make(builder, name)
    return name


def _make(builder: Builder, name: str) -> None:
    root, archive = builder.temporary / "root", builder.temporary / "root.tar"
    mirror = os.environ.get(MIRROR_VARIABLE) or _MIRROR
    bootstrap = ["debootstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, str(root), mirror]
    # With mounts of its own: debootstrap leaves /proc mounted when it is killed, and the folder could not be removed.
    builder.run(["unshare", "--mount", "--propagation", "private", *bootstrap], _WHAT)
    excluded = [f"--exclude={pattern}" for pattern in (*_LEFT_OUT, *_DOCUMENTATION)]
    builder.run(["tar", "--numeric-owner", *excluded, "-C", str(root), "-cf", str(archive), "."], _WHAT)
    shutil.rmtree(root)
    container = builder.buildah("from", "--quiet", "scratch", what=_WHAT)
    builder.buildah("add", "--quiet", container, str(archive), "/", what=_WHAT)
    builder.buildah("config", "--env", f"PATH={_PATH}", "--cmd", "[]", container, what=_WHAT)
    builder.buildah("commit", "--quiet", "--rm", container, name, what=_WHAT)
    archive.unlink()
