"""Images already unpacked for containerd, so that a node has them at once and several nodes have them once.

An import of the trainer's image writes ten gigabytes and takes minutes, for each node again. Here it is done once: a
containerd of our own unpacks the images into a folder of the cache, and each node gets a copy of it that is made of
hard links. That is safe because containerd never changes a file of an image: layers are the lower folders of an
overlay, and contents are named by their digest. Only its databases are copied.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from devcluster.errors import ImageError
from devcluster.gobuild import Progress, Report, cache_root, lock
from devcluster.images.requirements import UNPACKING, check
from devcluster.images.running import run, start

_NAMESPACE: Final = "k8s.io"
"""Where the kubelet's part of containerd looks for images."""
_PREFIX: Final = "containerd-"
_CONTENTS: Final = "meshwright-archives"
"""A file in each folder: the digests of the archives that are in it; its date says when it was used last."""
_START_SECONDS: Final = 60.0
_CONFIGURATION: Final = """\
version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.internal.v1.opt"]
[grpc]
  address = "{socket}"
"""


def preload(archives: Sequence[Path], report: Report) -> Path:
    """Unpacks archives of images unless that was done; returns a folder for `provide`.

    What an earlier call unpacked is taken over, so a change of one image costs that image.

    Args:
        archives: made by `Images`, or others that `ctr images import` reads.
        report: is told what is being done.

    Raises:
        ImageError: it could not be done; the message says why and what to do.
    """
    cache = cache_root() / "images"
    cache.mkdir(parents=True, exist_ok=True)
    with lock(cache / "preload.lock", report):
        digests = {_digest(archive, cache): archive for archive in archives}
        target = cache / f"{_PREFIX}{hashlib.sha256(' '.join(sorted(digests)).encode()).hexdigest()[:16]}"
        if not target.exists():
            older = sorted(cache.glob(f"{_PREFIX}*/{_CONTENTS}"), key=lambda path: path.stat().st_mtime)
            there = set(older[-1].read_text().split()) if older else set()
            missing = [archive for digest, archive in digests.items() if digest not in there]
            check(cache, 2.1 * sum(archive.stat().st_size for archive in missing) / 1e9 + 0.5, UNPACKING)
            partial = cache / "preload.partial"
            shutil.rmtree(partial, ignore_errors=True)  # of a process that was killed
            try:
                if older:
                    _link(older[-1].parent, partial)
                _unpack(missing, partial, cache / "preload.log", report)
                (partial / _CONTENTS).unlink(missing_ok=True)  # a link to the older one's
                (partial / _CONTENTS).write_text("\n".join(sorted(digests)))
                partial.rename(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
            # The one that was used last stays for a while: somebody may be about to link it.
            for contents in older[:-1]:
                shutil.rmtree(contents.parent)
    return target


def provide(preloaded: Path, root: Path) -> None:
    """Makes a containerd's root folder with the images in it, in seconds, and of hardly any size.

    Args:
        preloaded: from `preload`.
        root: a folder that is not there yet, on the same file system; containerd must not have been started on it.

    Raises:
        ImageError: the folder is there, or is on another file system.
    """
    if root.exists():
        raise ImageError(f"{root} is there already; images are put into a new folder")
    root.parent.mkdir(parents=True, exist_ok=True)
    if root.parent.stat().st_dev != preloaded.stat().st_dev:
        raise ImageError(
            f"{root} and {preloaded} are on different file systems, so images cannot be shared by links. Put the"
            " cluster's folder on the cache's file system, or set XDG_CACHE_HOME to a folder on the cluster's."
        )
    (preloaded / _CONTENTS).touch()
    _link(preloaded, root)


def _digest(archive: Path, cache: Path) -> str:
    # Ours say in their names what is in them.
    content = archive.name.encode() if archive.parent == cache else archive.read_bytes()
    return hashlib.sha256(content).hexdigest()


def _link(source: Path, target: Path) -> None:
    done = subprocess.run(["cp", "-al", str(source), str(target)], capture_output=True, text=True, check=False)
    if done.returncode:
        shutil.rmtree(target, ignore_errors=True)
        raise ImageError(f"linking {source} to {target} failed: {done.stderr.strip()[-800:]}")
    for database in target.glob("*/*.db"):
        copy = database.with_suffix(".copy")
        shutil.copy2(database, copy)
        copy.rename(database)


def _unpack(archives: Sequence[Path], root: Path, log: Path, report: Report) -> None:
    """Lets a containerd import archives into its root folder."""
    log.unlink(missing_ok=True)
    # Paths of sockets must be short.
    with TemporaryDirectory(prefix="meshwright-") as state, running_containerd(root, Path(state), log) as socket:

        def ctr(*arguments: str) -> None:
            argv = ["ctr", "--address", str(socket), "--namespace", _NAMESPACE, *arguments]
            run(argv, "unpacking images", log, report)

        for number, archive in enumerate(archives):
            report(Progress("unpacking images", number, len(archives)))
            ctr("images", "import", str(archive))
        report(Progress("unpacking images", len(archives), len(archives)))
        # Waits until what no name leads to any more is removed.
        ctr("leases", "create", "--id", "meshwright")
        ctr("leases", "delete", "--sync", "meshwright")


@contextmanager
def running_containerd(root: Path, state: Path, log: Path) -> Iterator[Path]:
    """Runs a containerd while the block runs; gives the path of its socket."""
    socket = state / "containerd.sock"
    configuration = state / "config.toml"
    configuration.write_text(_CONFIGURATION.format(root=root, state=state / "state", socket=socket))
    with open(log, "a") as record, start(["containerd", "--config", str(configuration)], record) as process:
        try:
            deadline = time.monotonic() + _START_SECONDS
            while not socket.exists():
                if process.poll() is not None or time.monotonic() > deadline:
                    raise ImageError(f"containerd did not start; its log is {log}\n{log.read_text()[-800:]}")
                time.sleep(0.05)
            yield socket
        finally:
            process.terminate()
