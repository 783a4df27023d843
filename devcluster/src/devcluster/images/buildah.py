"""Buildah, with a storage of its own in our cache, so that nobody else's images are touched and ours can be removed."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from devcluster.gobuild import Report
from devcluster.images.running import run


class Builder:
    """Runs programs that make images, one after the other.

    Args:
        folder: for the storage and for whatever is temporary; the caller has locked it.
        log: a file that gets all they say.
        report: is told how far a build is.
    """

    def __init__(self, folder: Path, log: Path, report: Report) -> None:
        self.temporary = folder / "tmp"
        self._storage = ("--root", str(folder / "storage"), "--runroot", str(folder / "run"))
        self._log, self._report = log, report
        # Buildah's own temporary files are as large as the image, and /tmp may be memory.
        self._environment = os.environ | {"TMPDIR": str(self.temporary), "BUILDAH_ISOLATION": "chroot", "LC_ALL": "C"}

    def buildah(self, *arguments: str, what: str) -> str:
        """Runs one command of buildah and returns what it said.

        Raises:
            ImageError: it failed; the message says while doing `what`.
        """
        # The kernel's overlay and no other driver: one without it would copy gigabytes for each layer.
        return self.run(["buildah", *self._storage, "--storage-driver", "overlay", *arguments], what)

    def has(self, image: str) -> bool:
        """Whether the image is in the storage."""
        return bool(self.buildah("images", "--quiet", "--filter", f"reference={image}", what="looking for images"))

    def run(self, argv: Sequence[str], what: str) -> str:
        """Runs another program and returns what it said.

        Raises:
            ImageError: it failed.
        """
        return run(argv, what, self._log, self._report, self._environment)
