"""Builds images once and keeps them as archives in the user's cache.

`~/.cache/meshwright/images/NAME-HASH.tar` (XDG_CACHE_HOME is honoured) is complete whenever it is there: it appears by
a rename, under a lock. HASH covers the Dockerfile, the pinned versions and the packages' sources. Beside it lies
buildah's storage with the layers, so a change of our own code builds the last layer again and no other.
"""

from __future__ import annotations

import json
import os
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from devcluster.errors import ImageError
from devcluster.gobuild import Progress, Report, cache_root, lock
from devcluster.images import sources
from devcluster.images.base import ensure_base
from devcluster.images.buildah import Builder
from devcluster.images.pip_settings import CERTIFICATES, PipSettings, configured, pip_settings
from devcluster.images.requirements import check
from devcluster.images.sources import OPERATOR, REPOSITORY, TRAINER, Recipe
from devcluster.toolchain import Display

_GIGABYTES: Final = {OPERATOR.name: 2.0, TRAINER.name: 16.0}
"""What a build from nothing takes at most: storage, archive, and what is temporary."""


class Images:
    """The images that a checkout describes.

    Args:
        checkout: the repository.
        report: is told how far a build is; by default it is shown on standard error.
        leave_out: Python packages to leave out of the trainer's image. Triton is a gigabyte that compiles for GPUs.
    """

    def __init__(
        self, checkout: Path = REPOSITORY, *, report: Report | None = None, leave_out: Sequence[str] = ("triton",)
    ) -> None:
        self._checkout, self._leave_out = checkout, tuple(sorted(leave_out))
        self._report: Report = report or Display()
        self._folder = cache_root() / "images"

    @property
    def operator_reference(self) -> str:
        """The name of the operator's image, which a runtime finds it by once the archive is imported."""
        return OPERATOR.reference(sources.version(self._checkout))

    @property
    def trainer_reference(self) -> str:
        """The name of the trainer's image."""
        return TRAINER.reference(sources.version(self._checkout))

    def build_operator(self) -> Path:
        """Builds the operator's image unless it is there; returns an archive that `ctr images import` reads.

        Raises:
            ImageError: it could not be built; the message says why and what to do.
        """
        return self._build(OPERATOR, {})

    def build_trainer(self) -> Path:
        """Builds the trainer's image unless it is there; returns an archive that `ctr images import` reads.

        Raises:
            ImageError: it could not be built; the message says why and what to do.
        """
        return self._build(TRAINER, {"LEAVE_OUT": " ".join(self._leave_out)})

    @contextmanager
    def files(self, archive: Path) -> Iterator[Path]:
        """The files of an image that was built here, as a folder, while the block runs; nobody can build meanwhile.

        Args:
            archive: what `build_operator` or `build_trainer` returned.

        Raises:
            ImageError: buildah's storage has lost the image.
        """
        with self._alone():
            builder = Builder(self._folder, self._folder / "files.log", self._report)
            image, what = _identity(archive), f"mounting {archive.name}"
            if f"sha256:{image}" not in builder.buildah("images", "--all", "--quiet", "--no-trunc", what=what).split():
                raise ImageError(f"{archive} is there, but no longer its layers: remove it, and it will be built again")
            container = builder.buildah("from", "--quiet", "--pull-never", image, what=what)
            try:
                yield Path(builder.buildah("mount", container, what=what))
            finally:
                builder.buildah("rm", container, what=what)

    def _build(self, recipe: Recipe, arguments: dict[str, str]) -> Path:
        words = {"VERSION": sources.version(self._checkout), **arguments}
        self._folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="meshwright-context-") as context:
            digest = sources.collect(recipe, self._checkout, Path(context))
            suffix = "".join(f"-without-{name}" for name in arguments.get("LEAVE_OUT", "").split())
            target = self._folder / f"{recipe.name}-{digest[:16]}{suffix}.tar"
            if not target.exists():
                with self._alone() as temporary:
                    if not target.exists():  # nobody else has built it while we waited
                        self._make(recipe, Path(context), words, temporary / target.name)
                        (temporary / target.name).rename(target)
        return target

    def _make(self, recipe: Recipe, context: Path, arguments: dict[str, str], archive: Path) -> None:
        check(self._folder, _GIGABYTES[recipe.name])
        log = self._folder / f"{recipe.name}.log"
        log.unlink(missing_ok=True)
        builder = Builder(self._folder, log, self._report)
        _build_archive(builder, recipe, context, arguments, archive, self._report)
        for old in self._folder.glob(f"{recipe.name}-*.tar"):
            old.unlink()

    @contextmanager
    def _alone(self) -> Iterator[Path]:
        """Nobody else uses buildah's storage meanwhile; gives a folder for what is temporary."""
        with lock(self._folder / "build.lock", self._report), _empty(self._folder / "tmp") as temporary:
            yield temporary


def _build_archive(
    builder: Builder, recipe: Recipe, context: Path, arguments: dict[str, str], archive: Path, report: Report
) -> None:
    builder.buildah("rm", "--all", what="removing what a killed build left")
    base = ensure_base(builder, report)
    lent = _lend(pip_settings(configured(), os.environ), builder.temporary)
    words = [f"--build-arg={key}={value}" for key, value in {"BASE": base, **arguments}.items()]
    options = ["--layers", "--pull-never", "--format=docker", f"--file={context / recipe.dockerfile}", *lent, *words]
    what = f"building the {recipe.name} image"
    # The only name that it gets, since an archive holds all of them.
    name = recipe.reference(arguments["VERSION"])
    builder.buildah("build", *options, f"--tag={name}", str(context), what=what)
    # Named too, or its layers would be removed below, and the next build would begin from nothing.
    first_stage = f"localhost/meshwright-stage:{recipe.name}"
    builder.buildah("build", *options, "--target=build", f"--tag={first_stage}", str(context), what=what)
    report(Progress(f"saving the {recipe.name} image", 0, 0))
    # In Docker's format, since it is written in one go and uncompressed: the reader is on this machine.
    builder.buildah("push", "--quiet", name, f"docker-archive:{archive}:{name}", what=what)
    builder.buildah("rmi", "--prune", what="removing older images")


def _identity(archive: Path) -> str:
    """The image's ID, by which buildah's storage knows it: the digest of its configuration."""
    with tarfile.open(archive) as opened:
        manifest = opened.extractfile("manifest.json")
        assert manifest is not None
        [image] = json.load(manifest)
    return Path(image["Config"]).stem


def _lend(settings: PipSettings, folder: Path) -> list[str]:
    """Options that lend the settings to the steps that ask for them; no layer keeps what they name."""
    conf = folder / "pip.conf"
    conf.touch(0o600)  # it may hold a password
    conf.write_text(settings.text)
    options = [f"--secret=id=pip.conf,src={conf}"]
    if settings.certificates:
        options.append(f"--secret=id={Path(CERTIFICATES).name},src={settings.certificates}")
    return options + [f"--volume={path}:{path}:ro" for path in settings.folders]


@contextmanager
def _empty(folder: Path) -> Iterator[Path]:
    """A folder that is empty now and gone afterwards, whatever a killed build left in it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
