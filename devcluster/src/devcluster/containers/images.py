"""The images that every container node has: ours as they are built from this checkout, and the pause image."""

from __future__ import annotations

import os
from pathlib import Path

from devcluster.containers.archive import write_archive
from devcluster.containers.configuration import PAUSE_IMAGE
from devcluster.containers.requirements import find_node_programs
from devcluster.gobuild import Report, cache_root
from devcluster.images.build import Images
from devcluster.images.preload import preload
from devcluster.toolchain import Display

OVERRIDE = "MESHWRIGHT_NODE_IMAGES"
"""Environment: a folder as `node_images` made it, to be used as it is while sources change."""


def node_images(report: Report | None = None) -> Path:
    """A folder from which nodes get their images, made unless it is there; the one that `OVERRIDE` names, if it does.

    Args:
        report: is told what is being done; by default it is shown on standard error.

    Raises:
        ImageError: An image could not be built; the message says why and what to do.
    """
    if ready := os.environ.get(OVERRIDE):
        return Path(ready)
    report = report or Display()
    images = Images(report=report)
    return preload([_pause(), images.build_operator(), images.build_trainer()], report)


def _pause() -> Path:
    program = find_node_programs().pause
    archive = cache_root() / "images" / f"pause-{program.parent.name}.tar"
    if not archive.exists():
        archive.parent.mkdir(parents=True, exist_ok=True)
        partial = archive.with_suffix(".partial")
        write_archive(partial, PAUSE_IMAGE, {"pause": program}, ["/pause"])
        partial.rename(archive)
    return archive
