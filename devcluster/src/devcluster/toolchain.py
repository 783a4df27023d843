"""Finds the programs of the cluster, and has them built where they are missing.

Only the standard library, and it also works as a plain file, before anything is installed:
`python3 devcluster/src/devcluster/toolchain.py build`.

Where programs are looked for:

1. `MESHWRIGHT_KUBE`, if set: a folder with `kube`, `helm` and the links that `build` makes beside them.
2. Else the cache, `~/.cache/meshwright/kube-HASH/` (XDG_CACHE_HOME is honoured). HASH covers the Go module's
   files and the build's settings, so a changed module is a new folder and an old one stays usable.

If `KUBEBUILDER_ASSETS` names a folder with etcd, kube-apiserver and kubectl, those (and whatever else of ours is
there) are taken from it. The controllers and the scheduler must be of the API server's minor version.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

if not __package__:  # run as a file: make the package importable, and its modules no longer top-level names
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from devcluster import gobuild
from devcluster.errors import DevClusterError, ToolchainError
from devcluster.gobuild import Progress


@dataclass(frozen=True)
class Programs:
    """Paths of everything that a cluster runs."""

    kube: Path
    etcd: Path
    apiserver: Path
    controllers: Path
    scheduler: Path
    kubectl: Path
    helm: Path


_FILES = {
    "kube": "kube",
    "etcd": "etcd",
    "apiserver": "kube-apiserver",
    "controllers": "kube-controller-manager",
    "scheduler": "kube-scheduler",
    "kubectl": "kubectl",
    "helm": "helm",
}
_ASSETS = ("etcd", "kube-apiserver", "kubectl")


def find_programs() -> Programs:
    """The programs, if all are there.

    Raises:
        ToolchainError: Some are missing; the message says how to get them.
    """
    override = os.environ.get("MESHWRIGHT_KUBE")
    folder = Path(override) if override else gobuild.folder()
    paths = {name: folder / file for name, file in _FILES.items()}
    missing = [path.name for path in paths.values() if not path.exists()]
    if missing and override:
        raise ToolchainError(f"MESHWRIGHT_KUBE is {override}, which has no {', '.join(missing)}")
    if missing:
        raise ToolchainError(
            f"the cluster's programs are not built yet (there is no {folder}). Run `devcluster build`, or `make test`,"
            " which does it: once, some minutes."
        )
    return Programs(**(paths | _assets(paths["scheduler"])))


def _assets(scheduler: Path) -> dict[str, Path]:
    folder = Path(os.environ.get("KUBEBUILDER_ASSETS") or "/nonexistent")
    if not all((folder / name).exists() for name in _ASSETS):
        return {}
    found = {name: folder / file for name, file in _FILES.items() if (folder / file).exists()}
    theirs, ours = _minor(found["apiserver"]), _minor(found.get("scheduler", scheduler))
    if theirs != ours:
        raise ToolchainError(
            f"KUBEBUILDER_ASSETS has kube-apiserver {theirs}, but kube-scheduler is {ours}: unset it for this"
        )
    return found


def _minor(program: Path) -> str:
    done = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"v(\d+\.\d+)", done.stdout)
    return found[1] if found else "of unknown version"


class Display:
    """Draws progress: one moving line on a terminal, now and then a line elsewhere."""

    _TEXTS = {  # noqa: RUF012
        "toolchain": "fetching Go",
        "wait": "another build is running, waiting for it",
        "download": "downloading Go modules",
        "compile": "compiling Kubernetes (once)",
    }

    def __init__(self, as_json: bool = False) -> None:
        self._json, self._terminal = as_json, sys.stderr.isatty()
        self._shown = 0.0
        self._step = ""

    def __call__(self, progress: Progress) -> None:
        """Shows it, if it is time to."""
        now = time.monotonic()
        complete = progress.total > 0 and progress.done == progress.total
        pause = 0.1 if self._terminal or self._json else 15.0
        if progress.step == self._step and now - self._shown < pause and not complete:
            return
        self._step, self._shown = progress.step, now
        if self._json:
            print(json.dumps(vars(progress)), flush=True)
            return
        text = self._TEXTS.get(progress.step, progress.step)
        if progress.total:
            share = progress.done / progress.total
            text = f"{text:<28} [{'#' * int(30 * share):<30}] {progress.done}/{progress.total}"
        start, end = ("\r\x1b[K", "\n" if complete else "") if self._terminal else ("", "\n")
        print(start + text, end=end, file=sys.stderr, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """`toolchain.py build | where`."""
    parser = argparse.ArgumentParser(prog="toolchain", description="The programs of the dev cluster.")
    parser.add_argument("do", choices=["build", "where"], help="build them if they are missing; or say where they are")
    parser.add_argument("--json", action="store_true", help="progress as JSON lines on standard output")
    given = parser.parse_args(argv)
    try:
        if given.do == "build" and not os.environ.get("MESHWRIGHT_KUBE"):
            gobuild.build(Display(given.json))
        kube = find_programs().kube
    except DevClusterError as error:
        print(f"devcluster: {error}", file=sys.stderr)
        return 1
    print(json.dumps({"folder": str(kube.parent)}) if given.json else kube.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
