"""What stands in the way of a build is said before it begins, or in the builder's own words; nothing is left behind."""

from __future__ import annotations

import os
import shutil
from collections import namedtuple
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from devcluster.errors import ImageError
from devcluster.gobuild import Progress
from devcluster.images import Images, obstacle, preload, provide

Usage = namedtuple("Usage", "total used free")
# Has every base image, and does in a build what it is told to.
BUILDAH = """#!/bin/sh
echo "$*" >> "$CALLS"
case "$*" in
*" images "*) echo some-image ;;
*" build "*) echo "[1/2] STEP 3/11: RUN something"; eval "$BUILD" ;;
*" push "*) eval "$PUSH"; for word; do :; done; word="${word#docker-archive:}"; echo archive > "${word%%:*}" ;;
esac
"""


class Machine:
    """A machine with a builder that is not one, and a cache of its own."""

    def __init__(self, root: Path, patch: pytest.MonkeyPatch) -> None:
        self.patch, self.calls, self.programs = patch, root / "calls", root / "bin"
        self.cache = root / "cache" / "meshwright" / "images"
        self.programs.mkdir()
        for name, text in {"buildah": BUILDAH, "debootstrap": "#!/bin/sh\nexit 1\n"}.items():
            (self.programs / name).write_text(text)
            (self.programs / name).chmod(0o755)
        self.set(PATH=f"{self.programs}:{os.environ['PATH']}", CALLS=self.calls, XDG_CACHE_HOME=root / "cache")
        self.set(BUILD="true", PUSH="true")
        patch.setattr(os, "geteuid", lambda: 0)

    def set(self, **variables: object) -> None:
        for name, value in variables.items():
            self.patch.setenv(name, str(value))

    def free(self, gigabytes: float) -> None:
        self.patch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, int(gigabytes * 1e9)))


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def ignore(_: Progress) -> None:
    pass


def test_a_build_is_kept_and_not_repeated(machine: Machine) -> None:
    said: list[Progress] = []
    images = Images(report=said.append)
    archive = images.build_operator()
    assert archive.parent == machine.cache
    assert archive.read_text() == "archive\n"
    assert Progress("building the operator image", 3, 11) in said
    calls = machine.calls.read_text()
    assert images.build_operator() == archive
    assert machine.calls.read_text() == calls
    # A kept image needs no builder, and nobody's rights.
    machine.patch.setattr(os, "geteuid", lambda: 1000)
    assert images.build_operator() == archive


def test_a_new_build_replaces_the_old_one(machine: Machine) -> None:
    machine.cache.mkdir(parents=True)
    old, other = machine.cache / "trainer-0123.tar", machine.cache / "operator-0123.tar"
    old.touch()
    other.touch()
    made = Images(report=ignore).build_trainer()
    assert set(machine.cache.glob("*.tar")) == {made, other}


def test_what_is_left_out_is_another_image(machine: Machine) -> None:
    names = [Images(report=ignore, leave_out=names).build_trainer().name for names in ((), ("triton",), ("b", "a"))]
    assert len(set(names)) == 3
    assert "--build-arg=LEAVE_OUT=a b" in machine.calls.read_text()


@pytest.mark.parametrize(
    ("says", "advice"),
    [
        ("write /x: no space left on device", "The disk is full"),
        ("'overlay' is not supported over overlayfs", "XDG_CACHE_HOME"),
        ("Temporary failure in name resolution", "pip config list"),
        ("something else", "ended with 5"),
    ],
)
@pytest.mark.parametrize("where", ["BUILD", "PUSH"])
def test_a_failure_is_explained_and_leaves_nothing(machine: Machine, where: str, says: str, advice: str) -> None:
    machine.set(**{where: f'echo "{says}"; exit 5'})
    with pytest.raises(ImageError, match=advice) as caught:
        Images(report=ignore).build_operator()
    assert says in str(caught.value)
    assert str(machine.cache / "operator.log") in str(caught.value)
    assert not [path for path in machine.cache.iterdir() if path.suffix == ".tar" or path.name == "tmp"]


def test_no_root(machine: Machine) -> None:
    machine.patch.setattr(os, "geteuid", lambda: 1000)
    assert "run this as root" in obstacle()
    with pytest.raises(ImageError, match="as root"):
        Images(report=ignore).build_operator()


def test_a_missing_program_is_named(machine: Machine) -> None:
    assert obstacle() == ""
    machine.set(PATH=machine.programs)
    (machine.programs / "debootstrap").unlink()
    assert "no debootstrap here" in obstacle()
    assert "apt-get install debootstrap" in obstacle()


def test_a_small_disk(machine: Machine) -> None:
    machine.free(10.0)
    images = Images(report=ignore)
    with pytest.raises(ImageError, match=r"up to 16\.0 GB at .*, 10\.0 GB are free"):
        images.build_trainer()
    archive = images.build_operator()
    machine.free(0.5)
    machine.set(PATH=f"{machine.programs}:{os.environ['PATH']}")
    (machine.programs / "containerd").symlink_to("buildah")
    with pytest.raises(ImageError, match=r"0\.5 GB are free"):
        preload([archive], ignore)


def test_images_cannot_be_shared_with_another_disk(tmp_path: Path) -> None:
    with TemporaryDirectory(dir="/dev/shm") as elsewhere, pytest.raises(ImageError, match="different file systems"):
        provide(tmp_path, Path(elsewhere) / "root")
