"""`python -m devcluster.containers.prepare`: makes this machine able to run container nodes, as root.

It installs Debian's packages that are missing and builds programs and images into the user's cache, which takes some
minutes once. What it does by the environment's CONTAINER_NODES:

* unset: where container nodes cannot be had, it says why, and tests that need them are skipped with that reason;
* `no`: it leaves them out;
* `required`: where they cannot be had, it fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence

from devcluster import gobuild
from devcluster.containers.images import node_images
from devcluster.containers.requirements import WISH, missing_packages, why_not
from devcluster.errors import DevClusterError
from devcluster.toolchain import Display


def install_packages(packages: Sequence[str]) -> str:
    """Installs Debian packages; returns why they could not be, or nothing."""
    if not shutil.which("apt-get"):
        return f"the packages {' '.join(packages)} are missing, and there is no apt-get to install them"
    print(f"container nodes: installing {' '.join(packages)}", file=sys.stderr, flush=True)
    env = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    for argv in (["update", "-qq"], ["install", "-qq", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(["apt-get", *argv], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            return f"`apt-get {' '.join(argv)}` failed: {done.stderr.strip()[-500:]}"
    return ""


def prepare() -> str:
    """Does all of it; returns why container nodes cannot run here, or nothing.

    Raises:
        DevClusterError: A program could not be built.
    """
    if os.environ.get(WISH) != "no" and sys.platform.startswith("linux") and os.geteuid() == 0:
        if (missing := missing_packages()) and (problem := install_packages(missing)):
            return problem
        gobuild.build(Display(), gobuild.CONTAINER_NODE)
        node_images(Display())
    return why_not()


def main() -> int:
    """The command."""
    try:
        problem = prepare()
    except DevClusterError as error:
        problem = str(error)
    if problem:
        print(f"container nodes: left out: {problem}", file=sys.stderr)
    return int(bool(problem) and os.environ.get(WISH) == "required")


if __name__ == "__main__":
    sys.exit(main())
