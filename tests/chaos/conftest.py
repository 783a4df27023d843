"""One control plane with slots for all chaos tests of a session."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from devcluster.cluster import Cluster
from tests.chaos.arena import Arena, start_cluster

SLOTS = 4


@pytest.fixture(scope="session")
def chaos_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A control plane of the chaos tests' own: nodes are lost only on purpose there."""
    with start_cluster(tmp_path_factory.mktemp("chaos")) as cluster:
        yield cluster


@pytest.fixture
async def arena(chaos_cluster: Cluster) -> AsyncIterator[Arena]:
    """Slots on it, with nobody running yet."""
    async with Arena(chaos_cluster, SLOTS) as ready:
        yield ready
