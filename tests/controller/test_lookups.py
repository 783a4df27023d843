"""Small facts are read once a minute, and their absence is no error."""

from __future__ import annotations

from typing import cast

from meshwright.cluster.api import ApiServer
from meshwright.lookups import REMEMBERED_SECONDS, Lookups
from tests.controller.memory_api import MemoryApi


class Bench:
    """Lookups with a clock of their own."""

    def __init__(self) -> None:
        self.api, self.now = MemoryApi(), 0.0
        self.lookups = Lookups(cast(ApiServer, self.api), clock=lambda: self.now)

    def have(self, plural: str, name: str, **fields: object) -> None:
        self.api.objects[(plural, "", name)] = {"metadata": {"name": name}, **fields}


async def test_a_gang_has_the_value_of_its_class() -> None:
    bench = Bench()
    bench.have("priorityclasses", "high", value=1000)
    assert await bench.lookups.priority("high") == 1000
    assert await bench.lookups.priority(None) == 0
    assert await bench.lookups.priority("gone") == 0


async def test_what_was_read_is_believed_for_a_minute() -> None:
    bench = Bench()
    bench.have("priorityclasses", "high", value=1)
    assert await bench.lookups.priority("high") == 1
    bench.have("priorityclasses", "high", value=2)
    bench.now = REMEMBERED_SECONDS
    assert await bench.lookups.priority("high") == 1
    bench.now += 1
    assert await bench.lookups.priority("high") == 2


async def test_labels_of_a_namespace_that_is_gone_are_none() -> None:
    bench = Bench()
    bench.have("namespaces", "team", metadata={"labels": {"a": "b"}})
    assert await bench.lookups.namespace_labels("team") == {"a": "b"}
    assert await bench.lookups.namespace_labels("gone") == {}
