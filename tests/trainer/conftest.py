"""One pool of ranks for all of the trainer's tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.trainer.pool import Pool


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    """Four ranks."""
    made = Pool(4)
    yield made
    made.close()
