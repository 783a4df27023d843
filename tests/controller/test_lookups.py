"""Small facts are read once a minute, and their absence is no error."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from meshwright.cluster.api import ApiServer
from meshwright.cluster.errors import Unreachable
from meshwright.lookups import REMEMBERED_SECONDS, Lookups, Rank
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
    assert (await bench.lookups.rank("high")).value == 1000
    assert await bench.lookups.rank(None) == Rank(0, preempts=False, spared=False)
    assert await bench.lookups.rank("gone") == Rank()


async def test_a_gang_whose_job_names_no_class_has_the_clusters_default() -> None:
    """As the API server gives it to the gang's pods."""
    bench = Bench()
    bench.have("priorityclasses", "high", value=1000)
    bench.have("priorityclasses", "usual", value=7, globalDefault=True)
    assert (await bench.lookups.rank(None)).value == 7
    assert (await bench.lookups.rank("gone")).value == 0


OWN, SPARE = "meshwright.dev/preemption-policy", "meshwright.dev/preemptible"


@pytest.mark.parametrize(
    ("policy", "annotations", "preempts", "spared"),
    [
        ("PreemptLowerPriority", {}, True, False),
        ("Never", {}, False, False),
        ("Never", {OWN: "PreemptLowerPriority"}, True, False),
        ("PreemptLowerPriority", {OWN: "Never"}, False, False),
        ("Never", {SPARE: "false"}, False, True),
        ("Never", {SPARE: "true", OWN: "Whatever"}, False, False),
    ],
)
async def test_the_annotation_speaks_for_gangs_and_the_field_for_pods(
    policy: str, annotations: dict[str, str], preempts: bool, spared: bool
) -> None:
    bench = Bench()
    bench.have(
        "priorityclasses", "c", value=5, preemptionPolicy=policy, metadata={"name": "c", "annotations": annotations}
    )
    assert await bench.lookups.rank("c") == Rank(5, preempts, spared)


async def test_what_was_read_is_believed_for_a_minute() -> None:
    bench = Bench()
    bench.have("priorityclasses", "high", value=1)
    assert (await bench.lookups.rank("high")).value == 1
    bench.have("priorityclasses", "high", value=2)
    bench.now = REMEMBERED_SECONDS
    assert (await bench.lookups.rank("high")).value == 1
    bench.now += 1
    assert (await bench.lookups.rank("high")).value == 2


async def test_labels_of_a_namespace_that_is_gone_are_none() -> None:
    bench = Bench()
    bench.have("namespaces", "team", metadata={"labels": {"a": "b"}})
    assert await bench.lookups.namespace_labels("team") == {"a": "b"}
    assert await bench.lookups.namespace_labels("gone") == {}


async def test_a_class_that_was_made_after_the_others_were_read_is_found() -> None:
    bench = Bench()
    assert await bench.lookups.rank("new") == Rank()
    bench.have("priorityclasses", "new", value=3)
    bench.now = 3
    assert (await bench.lookups.rank("new")).value == 3


QUOTA = {"spec": {"hard": {"pods": "5"}}, "status": {"hard": {"pods": "5"}, "used": {"pods": "1"}}}


def lists(bench: Bench) -> int:
    return bench.api.lists.count("resourcequotas")


async def test_many_who_ask_at_once_read_once() -> None:
    bench = Bench()
    bench.api.objects[("resourcequotas", "team", "q")] = {"metadata": {"name": "q", "namespace": "team"}, **QUOTA}
    answers = await asyncio.gather(*(bench.lookups.quotas("team") for _ in range(16)))
    assert len(answers[0]) == 1
    assert answers.count(answers[0]) == 16
    assert lists(bench) == 1


async def test_after_a_gang_took_its_share_the_quotas_are_read_anew_even_in_the_midst_of_a_reading() -> None:
    bench = Bench()
    bench.api.objects[("resourcequotas", "team", "q")] = {"metadata": {"name": "q", "namespace": "team"}, **QUOTA}
    early = asyncio.create_task(bench.lookups.quotas("team"))
    await asyncio.sleep(0)
    bench.lookups.forget_quotas("team")
    await bench.lookups.quotas("team")
    await early
    assert lists(bench) == 2
    await bench.lookups.quotas("team")
    assert lists(bench) == 2, "the later reading is what is kept"
    bench.lookups.forget_quotas("team")
    await bench.lookups.quotas("team")
    assert lists(bench) == 3


async def test_that_a_namespace_has_no_quotas_is_kept_whatever_gangs_take() -> None:
    bench = Bench()
    await bench.lookups.quotas("team")
    bench.lookups.forget_quotas("team")
    assert await bench.lookups.quotas("team") == ()
    assert lists(bench) == 1
    bench.now += 1.1
    await bench.lookups.quotas("team")
    assert lists(bench) == 2


async def test_a_reading_that_fails_fails_for_all_who_wait_and_is_not_kept() -> None:
    bench = Bench()
    bench.api.refuse["resourcequotas"] = Unreachable(0, "Down", "nobody answers")
    answers = await asyncio.gather(*(bench.lookups.quotas("team") for _ in range(3)), return_exceptions=True)
    assert [type(answer) for answer in answers] == [Unreachable] * 3
    bench.api.refuse.clear()
    assert await bench.lookups.quotas("team") == ()
