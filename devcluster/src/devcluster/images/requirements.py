"""What the machine must have before an image can be built."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from devcluster.errors import ImageError

BUILDING: Final = ("buildah", "debootstrap")
"""Programs that a build needs; each is a Debian package of that name."""
UNPACKING: Final = ("containerd",)
"""Programs that unpacking needs; the package has `ctr` too."""
GB: Final = 10**9


def obstacle(programs: Sequence[str] = BUILDING) -> str:
    """Why no image can be built on this machine, and what to do; empty where they can be.

    Args:
        programs: that are needed; those of a build by default.
    """
    if sys.platform != "linux":
        return f"images are built on Linux; this is {sys.platform}"
    if os.geteuid() != 0:
        return "images are built as root (a base is made by debootstrap, and layers are mounted); run this as root"
    missing = [program for program in programs if shutil.which(program) is None]
    if missing:
        return f"there is no {' and no '.join(missing)} here; on Debian: apt-get install {' '.join(missing)}"
    return ""


def check(cache: Path, gigabytes: float, programs: Sequence[str] = BUILDING) -> None:
    """Says at once what would fail later.

    Args:
        cache: the folder that will grow; it exists.
        gigabytes: by how much at most.
        programs: that are needed.

    Raises:
        ImageError: the machine lacks something; the message says what to do.
    """
    if problem := obstacle(programs):
        raise ImageError(problem)
    free = shutil.disk_usage(cache).free / GB
    if free < gigabytes:
        raise ImageError(
            f"the image needs up to {gigabytes:.1f} GB at {cache}, {free:.1f} GB are free. Make room, or set"
            " XDG_CACHE_HOME to a folder on a larger disk."
        )
