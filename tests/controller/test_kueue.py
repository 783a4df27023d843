"""Levels from Kueue: whatever is not there is said in words that help."""

from __future__ import annotations

from typing import Any, cast

import pytest

from meshwright.cluster.api import ApiServer, Listing
from meshwright.cluster.errors import Forbidden, NotFound, ServerError
from meshwright.cluster.resources import Resource
from meshwright.kueue import read_levels


class Kueue:
    """The part of an API server that Kueue adds: versions, which of them serves topologies, and those there are."""

    def __init__(self, *names: str, serves: str = "v1beta1", labels: tuple[str, ...] = ("a/spine", "a/leaf")) -> None:
        self.serves = serves
        self.names, self.labels = names, labels
        self.failure: Exception | None = None

    async def request(self, method: str, path: str, **_: Any) -> dict[str, Any]:
        if path == "/apis/kueue.x-k8s.io" and self.serves:
            versions = [{"version": v} for v in ("v1beta2", "v1beta1", "v1alpha1")]
            return {"preferredVersion": {"version": "v1beta2"}, "versions": versions}
        if path == f"/apis/kueue.x-k8s.io/{self.serves}":
            return {"resources": [{"name": "workloads"}, {"name": "topologies"}]}
        if path.startswith("/apis/kueue.x-k8s.io/") and self.serves:
            return {"resources": [{"name": "workloads"}]}
        raise NotFound(404, "NotFound", path)

    async def list(self, resource: Resource) -> Listing:
        assert resource.path() == f"/apis/kueue.x-k8s.io/{self.serves}/topologies"
        if self.failure:
            raise self.failure
        levels = [{"nodeLabel": label} for label in self.labels]
        return Listing([{"metadata": {"name": n}, "spec": {"levels": levels}} for n in self.names], "1")


async def read(kueue: Kueue, name: str = "", *bandwidth: str) -> tuple[list[tuple[str, float]], str]:
    found = await read_levels(cast(ApiServer, kueue), name, bandwidth)
    return [(level.name, level.bandwidth) for level in found.topology.levels], found.problem


@pytest.mark.parametrize("version", ["v1beta2", "v1beta1", "v1alpha1"])
async def test_the_only_object_is_read_in_whatever_version_it_is_served(version: str) -> None:
    assert await read(Kueue("only", serves=version), "", "leaf=900") == (
        [("spine", 200.0), ("leaf", 900.0), ("node", 400.0)],
        "",
    )


async def test_of_several_the_named_one_is_read() -> None:
    assert (await read(Kueue("a", "b"), "b"))[1] == ""
    for names, name, says in (
        (("b", "a"), "", "one Topology was expected, there are: a, b; name one"),
        (("a",), "c", "there is no Topology 'c', there are: a; name one"),
        ((), "", "one Topology was expected, there are: none"),
    ):
        levels, problem = await read(Kueue(*names), name)
        assert levels == []
        assert problem.startswith(says)


async def test_what_is_not_there_is_said() -> None:
    assert "has no kind Topology of kueue.x-k8s.io" in (await read(Kueue(serves="")))[1]
    assert "has no kind Topology of kueue.x-k8s.io" in (await read(Kueue(serves="v1")))[1]
    assert "Topology 'x' cannot be used" in (await read(Kueue("x", labels=("not a label",))))[1]
    assert "Topology 'x' cannot be used" in (await read(Kueue("x"), "", "rack=3"))[1]


async def test_a_missing_right_is_said_and_a_failing_server_is_asked_again() -> None:
    kueue = Kueue("x")
    kueue.failure = Forbidden(403, "Forbidden", "no")
    assert "may not be read" in (await read(kueue))[1]
    kueue.failure = ServerError(500, "InternalError", "later")
    with pytest.raises(ServerError):
        await read(kueue)
