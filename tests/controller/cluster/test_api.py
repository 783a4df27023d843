from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
from aiohttp import web

from meshwright.cluster import errors
from meshwright.cluster.api import ApiServer
from meshwright.cluster.credentials import Credentials
from meshwright.cluster.resources import CONFIGMAPS, NODES, PODS, TRAININGJOBS, Resource
from tests.controller.cluster.builders import a_pod
from tests.controller.cluster.stub_kube import StubKube, status


@pytest.mark.parametrize(
    ("resource", "arguments", "path"),
    [
        (PODS, (), "/api/v1/pods"),
        (PODS, ("team",), "/api/v1/namespaces/team/pods"),
        (PODS, ("team", "a"), "/api/v1/namespaces/team/pods/a"),
        (NODES, (None, "n1"), "/api/v1/nodes/n1"),
        (TRAININGJOBS, ("team", "a", "status"), "/apis/meshwright.dev/v1alpha1/namespaces/team/trainingjobs/a/status"),
        (PODS, ("../../x", "a/b"), "/api/v1/namespaces/..%2F..%2Fx/pods/a%2Fb"),
    ],
)
def test_paths(resource: Resource, arguments: tuple[Any, ...], path: str) -> None:
    assert resource.path(*arguments) == path


async def test_objects_come_and_go_as_dicts(api: ApiServer) -> None:
    made = await api.create(PODS, "team", a_pod())

    assert (await api.get(PODS, "team", "web"))["metadata"]["uid"] == made["metadata"]["uid"]
    with pytest.raises(errors.AlreadyExists):
        await api.create(PODS, "team", a_pod())
    with pytest.raises(errors.Conflict):
        await api.delete(PODS, "team", "web", uid="of another pod")
    await api.delete(PODS, "team", "web", uid=made["metadata"]["uid"], grace_seconds=3)
    await api.delete(PODS, "team", "web", uid=made["metadata"]["uid"])  # That it is gone already is success.
    with pytest.raises(errors.NotFound):
        await api.get(PODS, "team", "web")


async def test_a_delete_says_what_and_how(api: ApiServer, stub: StubKube) -> None:
    made = await api.create(PODS, "team", a_pod())
    await api.delete(PODS, "team", "web", uid=made["metadata"]["uid"], grace_seconds=0, propagation="Foreground")

    assert stub.requests("DELETE")[0].body == {
        "preconditions": {"uid": made["metadata"]["uid"]},
        "gracePeriodSeconds": 0,
        "propagationPolicy": "Foreground",
    }


async def test_a_status_is_written_only_over_the_version_it_was_decided_from(api: ApiServer, stub: StubKube) -> None:
    job = stub.put("trainingjobs", {"metadata": {"name": "a", "namespace": "team"}, "status": {"phase": "Pending"}})
    version = job["metadata"]["resourceVersion"]

    written = await api.patch_status(TRAININGJOBS, "team", "a", {"phase": "Admitted"}, resource_version=version)

    assert written["status"] == {"phase": "Admitted"}
    assert stub.requests("PATCH")[0].path.endswith("/trainingjobs/a/status")
    assert stub.requests("PATCH")[0].headers["Content-Type"] == "application/merge-patch+json"
    with pytest.raises(errors.Conflict):
        await api.patch_status(TRAININGJOBS, "team", "a", {"phase": "Failed"}, resource_version=version)


async def test_the_fence_stands_before_every_write_and_no_read(api: ApiServer, stub: StubKube) -> None:
    def no() -> None:
        raise errors.NotLeading("somebody else leads")

    stub.put("pods", a_pod())
    api.before_write = no
    writes: list[Callable[[], Any]] = [
        lambda: api.create(PODS, "team", a_pod("other")),
        lambda: api.replace(PODS, "team", "web", a_pod()),
        lambda: api.patch(PODS, "team", "web", {}),
        lambda: api.patch_status(TRAININGJOBS, "team", "a", {}, resource_version="1"),
        lambda: api.delete(PODS, "team", "web", uid="uid-web"),
    ]
    for write in writes:
        with pytest.raises(errors.NotLeading):
            await write()

    assert (await api.get(PODS, "team", "web"))["metadata"]["name"] == "web"
    assert (await api.list(PODS)).items
    assert {seen.method for seen in stub.seen} == {"GET"}


async def test_the_fence_is_asked_after_the_wait_for_a_free_slot(
    stub: StubKube, kubeconfig: Callable[..., str], eventually: Any
) -> None:
    """Leadership may be lost while a write waits for its turn; asked before, the write would go out."""
    api = ApiServer(await Credentials.find(kubeconfig(stub.url)), concurrency=1)
    leading = True

    def fence() -> None:
        if not leading:
            raise errors.NotLeading("lost while waiting")

    api.before_write = fence
    await api._slots.acquire()
    write = asyncio.ensure_future(api.create(PODS, "team", a_pod()))
    await asyncio.sleep(0)
    leading = False
    api._slots.release()
    with pytest.raises(errors.NotLeading):
        await write
    assert not stub.requests("POST")
    await api.close()


async def test_urgent_requests_do_not_queue(stub: StubKube, kubeconfig: Callable[..., str]) -> None:
    api = ApiServer(await Credentials.find(kubeconfig(stub.url)), concurrency=1)
    stub.put("pods", a_pod())
    await api._slots.acquire()

    assert await asyncio.wait_for(api.get(PODS, "team", "web", urgent=True), 5)
    await api.close()


async def test_a_list_is_read_in_pages_of_one_version(api: ApiServer, stub: StubKube) -> None:
    for number in range(7):
        stub.put("pods", a_pod(f"p{number}"))
    stub.page_size = 3

    listing = await api.list(PODS, query={"resourceVersion": "0"})

    assert [item["metadata"]["name"] for item in listing.items] == [f"p{n}" for n in range(7)]
    assert listing.resource_version == "7"
    assert [("resourceVersion" in seen.query, "continue" in seen.query) for seen in stub.requests("GET")] == [
        (True, False),
        (False, True),
        (False, True),
    ]


async def test_a_list_whose_token_expires_begins_again(api: ApiServer, stub: StubKube) -> None:
    for number in range(4):
        stub.put("pods", a_pod(f"p{number}"))
    stub.page_size = 3

    def expire_once(request: web.Request) -> web.Response | None:
        if "continue" not in request.query:
            return None
        stub.fault = None
        return status(410, "Expired")

    stub.fault = expire_once
    assert len((await api.list(PODS)).items) == 4


async def test_a_server_that_asks_to_wait_says_how_long(api: ApiServer, stub: StubKube) -> None:
    stub.fault = lambda _: web.json_response({"kind": "Status"}, status=429, headers={"Retry-After": "7"})
    with pytest.raises(errors.TooManyRequests) as caught:
        await api.get(PODS, "team", "web")
    assert caught.value.retry_after == 7


@pytest.mark.parametrize("text", ["<html>a proxy's page</html>", "", "[1]"])
async def test_an_answer_of_something_that_is_no_api_server_is_no_success(
    api: ApiServer, stub: StubKube, text: str
) -> None:
    stub.fault = lambda _: web.Response(text=text or "null")
    with pytest.raises(errors.ServerError):
        await api.get(PODS, "team", "web")


async def test_no_server_and_no_answer_are_unreachable(kubeconfig: Callable[..., str], stub: StubKube) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        refused = ApiServer(await Credentials.find(kubeconfig(f"http://127.0.0.1:{unused.getsockname()[1]}")))
        with pytest.raises(errors.Unreachable):
            await refused.get(PODS, "team", "web")
        await refused.close()
        unused.listen()  # From here on connections are made, and nobody answers: a frozen server.
        frozen = ApiServer(refused.credentials, timeout=0.1)
        with pytest.raises(errors.Unreachable):
            await frozen.get(PODS, "team", "web")
        await frozen.close()


async def test_a_rotated_token_is_taken_up_at_once(
    stub: StubKube, kubeconfig: Callable[..., str], tmp_path: Any
) -> None:
    token = tmp_path / "token"
    token.write_text("first-token\n")
    stub.tokens = {"first-token"}
    api = ApiServer(await Credentials.find(kubeconfig(stub.url, tokenFile=str(token))))
    await api.list(PODS)

    stub.tokens = {"second-token"}
    with pytest.raises(errors.Unauthorized) as caught:
        await api.list(PODS)
    assert caught.value.retryable
    token.write_text("second-token\n")
    assert (await api.create(PODS, "team", a_pod()))["metadata"]["name"] == "web"
    await api.close()


async def test_requests_are_measured_by_verb_resource_and_code(stub: StubKube, kubeconfig: Callable[..., str]) -> None:
    seen: list[tuple[str, str, int]] = []

    class Observer:
        def api_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
            seen.append((verb, resource, code))

    api = ApiServer(await Credentials.find(kubeconfig(stub.url)), observer=Observer(), timeout=0.5)
    await api.create(CONFIGMAPS, "team", {"metadata": {"name": "a"}})
    with pytest.raises(errors.NotFound):
        await api.get(PODS, "team", "web")
    stub.fault = lambda request: request.transport.close() if request.transport else None
    with pytest.raises(errors.Unreachable):
        await api.list(PODS)
    stub.fault = None

    def fence() -> None:
        raise errors.NotLeading("never sent, so never counted")

    api.before_write = fence
    with pytest.raises(errors.NotLeading):
        await api.create(PODS, "team", a_pod())
    await api.close()
    assert seen == [("create", "configmaps", 201), ("get", "pods", 404), ("list", "pods", 0)]


async def test_lines_of_any_length_and_in_any_pieces(api: ApiServer, stub: StubKube, eventually: Any) -> None:
    """aiohttp's own iteration over lines fails beyond its buffer; watch events may be megabytes."""
    got: list[bytes] = []

    async def read() -> None:
        async with aclosing(api.lines(PODS.path(), query={"watch": "1"}, silence=5)) as lines:
            async for line in lines:
                got.append(line)

    reader = asyncio.ensure_future(read())
    await eventually(lambda: stub.watches("pods"))
    stub.emit("pods", b"x" * 5_000_000)
    stub.emit("pods", b"y\n\nsecond\nthi")
    stub.emit("pods", b"rd\nrest")
    stub.end_watches("pods")
    await reader
    assert [(line[:1], len(line)) for line in got] == [(b"x", 5_000_001), (b"s", 6), (b"t", 5), (b"r", 4)]


async def test_a_silent_stream_is_dead(api: ApiServer, stub: StubKube) -> None:
    with pytest.raises(errors.Unreachable):
        await anext(api.lines(PODS.path(), query={"watch": "1"}, silence=0.1))


async def test_a_refused_stream_is_an_error_of_its_kind(api: ApiServer, stub: StubKube) -> None:
    stub.compact()
    with pytest.raises(errors.Gone):
        await anext(api.lines(PODS.path(), query={"watch": "1", "resourceVersion": "0"}, silence=5))
