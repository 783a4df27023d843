"""What an image is made of, and when it must be made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from devcluster.errors import ImageError
from devcluster.images import sources
from devcluster.images.sources import OPERATOR, REPOSITORY, TRAINER, Recipe, collect


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """As much of the repository as images are made of, and something else."""
    copy = tmp_path / "checkout"
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in ("crds", "operator", "trainer-image", "charts"):
        shutil.copytree(REPOSITORY / folder, copy / folder, ignore=ignored)
    for name in (".dockerignore", "constraints.txt", "Dockerfile", "README.md"):
        shutil.copy(REPOSITORY / name, copy / name)
    return copy


def digest(recipe: Recipe, checkout: Path, context: Path) -> str:
    shutil.rmtree(context, ignore_errors=True)
    return collect(recipe, checkout, context)


def append(path: Path) -> Callable[[Path], None]:
    def change(checkout: Path) -> None:
        with open(checkout / path, "a") as file:
            file.write("\n")

    return change


@pytest.mark.parametrize(
    ("changed", "operator", "trainer"),
    [
        ("Dockerfile", True, False),
        ("trainer-image/Dockerfile", False, True),
        ("constraints.txt", True, True),
        ("crds/meshwright_api/names.py", True, True),
        ("operator/src/meshwright_agent/wire.py", True, False),
        ("trainer-image/src/meshwright_trainer/loop.py", False, True),
        ("README.md", False, False),
    ],
)
def test_a_change_is_a_new_image_where_it_matters(
    checkout: Path, tmp_path: Path, changed: str, operator: bool, trainer: bool
) -> None:
    before = [digest(recipe, checkout, tmp_path / "context") for recipe in (OPERATOR, TRAINER)]
    append(Path(changed))(checkout)
    after = [digest(recipe, checkout, tmp_path / "context") for recipe in (OPERATOR, TRAINER)]
    assert [one != other for one, other in zip(before, after, strict=True)] == [operator, trainer]


def test_a_file_that_moves_is_a_change(checkout: Path, tmp_path: Path) -> None:
    before = digest(OPERATOR, checkout, tmp_path / "context")
    (checkout / "crds/meshwright_api/py.typed").rename(checkout / "crds/meshwright_api/py.moved")
    assert digest(OPERATOR, checkout, tmp_path / "context") != before


def test_dates_modes_and_what_python_leaves_are_no_change(checkout: Path, tmp_path: Path) -> None:
    before = digest(OPERATOR, checkout, tmp_path / "context")
    source = checkout / "operator/src/meshwright/jobs.py"
    os.utime(source, (1, 1))
    source.chmod(0o600)
    made = source.parent / "__pycache__" / "jobs.cpython-311.pyc"
    made.parent.mkdir()
    made.write_bytes(b"x")
    assert digest(OPERATOR, checkout, tmp_path / "context") == before
    copied = tmp_path / "context" / "operator/src/meshwright/jobs.py"
    assert (copied.stat().st_mtime, copied.stat().st_mode & 0o777) == (0, 0o644)
    assert not (copied.parent / "__pycache__").exists()


def test_the_name_is_the_one_that_the_chart_asks_for(checkout: Path) -> None:
    chart = checkout / "charts/meshwright/Chart.yaml"
    chart.write_text(chart.read_text().replace("appVersion: 0.1.0", 'appVersion: "7.8.9"'))
    assert OPERATOR.reference(sources.version(checkout)) == "docker.io/meshwright/operator:7.8.9"
    with pytest.raises(ImageError, match="checkout"):
        sources.version(checkout / "crds")
