"""Images that are unpacked once and shared by several containerds."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from devcluster.containers.archive import write_archive
from devcluster.errors import ImageError
from devcluster.gobuild import Progress
from devcluster.images import Images, preload, provide
from devcluster.images.preload import running_containerd

pytestmark = pytest.mark.slow
Ctr = Callable[..., str]


def quiet(_: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def archive(images: Images) -> Path:
    if shutil.which("containerd") is None:
        pytest.skip("there is no containerd here; on Debian: apt-get install containerd")
    return images.build_operator()


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        yield folder
        shutil.rmtree(folder)  # pytest keeps folders of several runs, and this one is large


@pytest.fixture(scope="module")
def preloaded(archive: Path, cache: Path) -> Path:
    return preload([archive], quiet)


@pytest.fixture
def node(preloaded: Path, cache: Path) -> Iterator[tuple[Path, Ctr]]:
    """A containerd of its own on what was preloaded."""
    root = cache / "node" / "root"
    provide(preloaded, root)
    with (
        TemporaryDirectory(prefix="meshwright-") as state,
        running_containerd(root, Path(state), cache / "node.log") as socket,
    ):

        def ctr(*words: str) -> str:
            argv = ["ctr", "--address", str(socket), "--namespace", "k8s.io", *words]
            return subprocess.run(argv, capture_output=True, text=True, check=True).stdout

        yield root, ctr
    shutil.rmtree(root)


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Inode and size of every regular file."""
    found = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_size) for path in found}


def test_a_node_has_the_image_whole_and_unpacked(node: tuple[Path, Ctr], images: Images) -> None:
    _, ctr = node
    [_, line] = ctr("images", "check", f"name=={images.operator_reference}").splitlines()
    assert " complete " in line
    assert line.split()[-1] == "true"


def test_it_has_no_size_of_its_own(node: tuple[Path, Ctr], preloaded: Path) -> None:
    root, _ = node
    shared, own = files(preloaded), files(root)
    copied = sum(size for name, (inode, size) in own.items() if shared.get(name, (0, 0))[0] != inode)
    assert sum(size for _, size in shared.values()) > 300e6
    assert copied < 5e6


def test_what_a_node_does_is_its_own(node: tuple[Path, Ctr], preloaded: Path, images: Images) -> None:
    root, ctr = node
    before, databases = files(preloaded), [path.read_bytes() for path in preloaded.glob("*/*.db")]
    ctr("images", "rm", "--sync", images.operator_reference)
    assert len(files(root)) < len(before) / 10
    assert files(preloaded) == before
    assert [path.read_bytes() for path in preloaded.glob("*/*.db")] == databases != []


def test_it_is_done_once(preloaded: Path, archive: Path) -> None:
    said: list[Progress] = []
    assert preload([archive], said.append) == preloaded
    assert not said


def test_a_change_takes_over_what_is_unpacked(preloaded: Path, archive: Path, cache: Path) -> None:
    """A second image comes beside the first, whose archive is not read again; what was used last stays."""
    small = cache / "small.tar"
    write_archive(small, "localhost/small:1", {"file": Path(__file__)}, ["/file"])
    said: list[Progress] = []
    both = preload([archive, small], said.append)
    assert said[0].total == 1
    first, second = files(preloaded), files(both)
    assert both != preloaded
    assert preloaded.exists()
    assert {name for name, found in first.items() if second[name] != found} <= {
        name for name in first if name.endswith(".db") or name == "meshwright-archives"
    }


def test_a_folder_in_use_is_refused(preloaded: Path) -> None:
    with pytest.raises(ImageError, match="new folder"):
        provide(preloaded, preloaded)
