"""What an image is made of: the files of the checkout that go into it, and a digest of them."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from devcluster.errors import ImageError

REPOSITORY = Path(__file__).resolve().parents[4]
_SHARED = (".dockerignore", "constraints.txt")
_SKIPPED = frozenset({"__pycache__", "build", "dist"})


@dataclass(frozen=True, slots=True)
class Recipe:
    """One image: its name, and its Dockerfile and folders relative to the checkout."""

    name: str
    dockerfile: str
    folders: tuple[str, ...]

    def reference(self, version: str) -> str:
        """The name under which the chart asks for the image, as container runtimes write it out."""
        return f"docker.io/meshwright/{self.name}:{version}"


OPERATOR = Recipe("operator", "Dockerfile", ("crds", "operator"))
TRAINER = Recipe("trainer", "trainer-image/Dockerfile", ("crds", "trainer-image"))


def version(checkout: Path = REPOSITORY) -> str:
    """The version that the chart asks for by default.

    Raises:
        ImageError: this is an installed package, not a checkout of the repository.
    """
    chart = checkout / "charts" / "meshwright" / "Chart.yaml"
    if not chart.exists():
        raise ImageError(f"images are built from a checkout of the repository, which is not at {checkout}")
    found = re.search(r"^appVersion: *\"?([^\s\"]+)", chart.read_text(), re.M)
    if not found:
        raise ImageError(f"{chart} has no appVersion")
    return found[1]


def collect(recipe: Recipe, checkout: Path, context: Path) -> str:
    """Copies what the recipe needs into a build context and returns the digest of what was copied.

    The builder compares dates and modes too, which differ between checkouts of equal content, so here they are all
    alike.
    """
    digest = hashlib.sha256(recipe.dockerfile.encode())
    for relative in _files(recipe, checkout):
        target = context / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(checkout / relative, target)
        digest.update(f"\0{relative}\0".encode() + hashlib.sha256(target.read_bytes()).digest())
    for path in (context, *context.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (0, 0))
    return digest.hexdigest()


def _files(recipe: Recipe, checkout: Path) -> Iterator[Path]:
    single = [Path(name) for name in (*_SHARED, recipe.dockerfile)]
    yield from single
    for folder in recipe.folders:
        below = sorted(path.relative_to(checkout) for path in (checkout / folder).rglob("*") if path.is_file())
        yield from (path for path in below if path not in single and not _is_made(path.parts))


def _is_made(parts: Sequence[str]) -> bool:
    return bool(_SKIPPED & set(parts)) or any(part.endswith((".pyc", ".egg-info")) for part in parts)
