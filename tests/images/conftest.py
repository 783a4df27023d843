"""The images, built by buildah; where they cannot be, these tests are skipped and say why."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from devcluster.containers.requirements import WISH
from devcluster.errors import ImageError
from devcluster.images import Images, obstacle
from devcluster.pytest_plugin import leave_out
from tests.images.sandbox import Image, configuration


@pytest.fixture(scope="session")
def images() -> Images:
    why_not = "CONTAINER_NODES=no" if os.environ.get(WISH) == "no" else obstacle()
    why_not = why_not or ("" if shutil.which("runc") else "there is no runc here; on Debian: apt-get install runc")
    if why_not:
        leave_out(why_not)
    return Images()


@pytest.fixture(scope="module")
def operator_image(images: Images) -> Iterator[Image]:
    archive = built(images.build_operator)
    with images.files(archive) as root:
        yield Image(archive, configuration(archive), root, images.operator_reference)


@pytest.fixture(scope="module")
def trainer_image(images: Images) -> Iterator[Image]:
    archive = built(images.build_trainer)
    with images.files(archive) as root:
        yield Image(archive, configuration(archive), root, images.trainer_reference)


def built(build: Callable[[], Path]) -> Path:
    """The archive; where it cannot be built, as on a disk that is too small, the test is skipped, unless required."""
    try:
        return build()
    except ImageError as error:
        leave_out(str(error))
