"""A small API server for tests, in a thread: enough of list, watch, write, discovery, and every fault on demand.

Not a model of Kubernetes (the real one is tested too): what it adds is answers that a healthy server never gives.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]
Line = Json | bytes | None
"""An event, raw bytes, or the proper end of a watch."""
Fault = Callable[[web.Request], web.StreamResponse | None]

KINDS = {
    "/api/v1": ["pods", "nodes", "services", "configmaps", "namespaces", "events", "resourcequotas", "secrets"],
    "/apis/meshwright.dev/v1alpha1": ["trainingjobs"],
    "/apis/coordination.k8s.io/v1": ["leases"],
    "/apis/events.k8s.io/v1": ["events"],
    "/apis/apiextensions.k8s.io/v1": ["customresourcedefinitions"],
    "/apis/authorization.k8s.io/v1": ["selfsubjectaccessreviews"],
}
CLUSTER_SCOPED = {"nodes", "namespaces", "customresourcedefinitions", "selfsubjectaccessreviews"}


def status(code: int, reason: str = "", message: str = "", **details: Any) -> web.Response:
    """A Status answer, as the API server gives it."""
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return web.json_response(body | ({"details": details} if details else {}), status=code)


@dataclass
class Seen:
    """One request, as it came in."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class Collection:
    """Objects of one kind, and who watches them."""

    objects: dict[tuple[str, str], Json] = field(default_factory=dict)
    history: list[tuple[int, Json]] = field(default_factory=list)
    watchers: list[asyncio.Queue[Line]] = field(default_factory=list)


class StubKube:
    """The server; `url` is where it listens.

    Attributes:
        fault: Asked first for each request; an answer of its own takes the place of the real one.
        tokens: Accepted bearer tokens; all when empty.
        denied: (verb, resource) pairs that access reviews refuse.
        absent: Kinds that are not served.
        seen: Every request so far.
        oldest: Resource versions below this are gone (410).
        page_size: Largest page of a list, whatever the client asks.
    """

    def __init__(self) -> None:
        self.fault: Fault | None = None
        self.tokens: set[str] = set()
        self.denied: set[tuple[str, str]] = set()
        self.absent: set[str] = set()
        self.seen: list[Seen] = []
        self.oldest = 0
        self.page_size = 10_000
        self.versions = itertools.count(1)
        self.version = 0
        self.collections: defaultdict[str, Collection] = defaultdict(Collection)
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def start(self) -> StubKube:
        self._thread.start()
        assert self._ready.wait(10), "the stub server did not start"
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def put(self, plural: str, item: Json) -> Json:
        """Creates or replaces an object; watchers are told."""
        made: Json = self._do(lambda: self._put(plural, item))
        return made

    def remove(self, plural: str, name: str, namespace: str = "", *, silently: bool = False) -> None:
        """Deletes an object; silently means that no watcher is told, as if it happened while nobody could see."""
        self._do(lambda: self._remove(plural, (namespace, name), silently))

    def emit(self, plural: str, event: Json | bytes) -> None:
        """Sends any line to the watchers of a kind."""
        self._do(lambda: self._tell(plural, event))

    def end_watches(self, plural: str) -> None:
        """Ends every watch of a kind properly."""
        self._do(lambda: self._tell(plural, None))

    def compact(self) -> None:
        """Forgets history: who watches from before now gets 410."""
        self._do(self._compact)

    def get(self, plural: str, name: str, namespace: str = "") -> Json | None:
        return self.collections[plural].objects.get((namespace, name))

    def requests(self, method: str, part: str = "") -> list[Seen]:
        return [s for s in self.seen if s.method == method and part in s.path]

    def watches(self, plural: str) -> int:
        """How many watches of a kind are open."""
        return len(self.collections[plural].watchers)

    def _do(self, call: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return call()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(10)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._handle)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        self._loop.run_until_complete(runner.setup())
        site = web.TCPSite(runner, "127.0.0.1", 0)
        self._loop.run_until_complete(site.start())
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._ready.set()
        self._loop.run_forever()
        for name in tuple(self.collections):
            self._tell(name, None)
        self._loop.run_until_complete(runner.cleanup())
        left = asyncio.all_tasks(self._loop)
        for task in left:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        self._loop.close()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        body = json.loads(raw) if raw else None
        self.seen.append(Seen(request.method, request.path, dict(request.query), dict(request.headers), body))
        if self.tokens and request.headers.get("Authorization", "").removeprefix("Bearer ") not in self.tokens:
            return status(401, "Unauthorized", "Unauthorized")
        if self.fault and (answer := self.fault(request)):
            return answer
        return await self._answer(request, body)

    async def _answer(self, request: web.Request, body: Any) -> web.StreamResponse:
        path = request.path.rstrip("/")
        if (found := self._discover(path)) is not None:
            return web.json_response(found)
        root = next((r for r in KINDS if path.startswith(r + "/")), None)
        if root is None:
            return web.Response(status=404, text="404 page not found")
        parts = path.removeprefix(root + "/").split("/")
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        plural, name = parts[0], parts[1] if len(parts) > 1 else ""
        if plural not in KINDS[root] or plural in self.absent:
            return web.Response(status=404, text="404 page not found")
        if plural == "selfsubjectaccessreviews":
            asked = body["spec"]["resourceAttributes"]
            refused = (asked["verb"], asked["resource"]) in self.denied
            return web.json_response({**body, "status": {"allowed": not refused}}, status=201)
        return await self._resource(request, plural, namespace, name, body)

    async def _resource(
        self, request: web.Request, plural: str, namespace: str, name: str, body: Any
    ) -> web.StreamResponse:
        there = self.collections[plural].objects.get((namespace, name))
        if request.method == "POST":
            key = (namespace, body["metadata"]["name"])
            if key in self.collections[plural].objects:
                return status(409, "AlreadyExists", f"{plural} {key[1]!r} already exists")
            return web.json_response(self._put(plural, body, namespace), status=201)
        if not name:
            return await (self._watch(request, plural) if "watch" in request.query else self._list(request, plural))
        if there is None:
            return status(404, "NotFound", f"{plural} {name!r} not found")
        if request.method == "GET":
            return web.json_response(there)
        if request.method == "DELETE":
            wanted = ((body or {}).get("preconditions") or {}).get("uid")
            if wanted and wanted != there["metadata"]["uid"]:
                return status(409, "Conflict", "the UID in the precondition does not match")
            self._remove(plural, (namespace, name), silently=False)
            return web.json_response({"kind": "Status", "status": "Success"})
        wanted = (body.get("metadata") or {}).get("resourceVersion")
        if wanted and wanted != there["metadata"]["resourceVersion"]:
            return status(409, "Conflict", "the object has been modified")
        changed = body if request.method == "PUT" else _merge(there, body)
        changed["metadata"] = {**there["metadata"], **changed.get("metadata", {})}
        return web.json_response(self._put(plural, changed, namespace))

    def _discover(self, path: str) -> Json | None:
        if path == "/api":
            return {"versions": ["v1"]}
        groups = [r.split("/")[2:] for r in KINDS if r.startswith("/apis/") and set(KINDS[r]) - self.absent]
        if path == "/apis":
            version = [{"groupVersion": f"{g}/{v}", "version": v} for g, v in groups]
            return {
                "groups": [
                    {"name": g, "versions": [v], "preferredVersion": v}
                    for (g, _), v in zip(groups, version, strict=True)
                ]
            }
        if path not in KINDS or not set(KINDS[path]) - self.absent:
            return None
        verbs = ["get", "list", "watch", "create", "patch", "update", "delete"]
        return {
            "resources": [
                {
                    "name": plural,
                    "singularName": plural.rstrip("s"),
                    "kind": plural.rstrip("s").capitalize(),
                    "namespaced": plural not in CLUSTER_SCOPED,
                    "verbs": verbs,
                }
                for plural in KINDS[path]
                if plural not in self.absent
            ]
        }

    async def _list(self, request: web.Request, plural: str) -> web.StreamResponse:
        items = list(self.collections[plural].objects.values())
        start, version = 0, self.version
        if token := request.query.get("continue"):
            start, version = map(int, token.split("."))
            if version < self.oldest:
                return status(410, "Expired", "The provided continue parameter is too old")
        size = min(self.page_size, int(request.query.get("limit") or self.page_size))
        metadata: Json = {"resourceVersion": str(version)}
        if start + size < len(items):
            metadata["continue"] = f"{start + size}.{version}"
        return web.json_response({"kind": "List", "metadata": metadata, "items": items[start : start + size]})

    async def _watch(self, request: web.Request, plural: str) -> web.StreamResponse:
        since = int(request.query.get("resourceVersion") or self.version)
        if since < self.oldest:
            return status(410, "Expired", f"too old resource version: {since}")
        collection = self.collections[plural]
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        queue: asyncio.Queue[Line] = asyncio.Queue()
        for version, past in collection.history:
            if version > since:
                queue.put_nowait(past)
        collection.watchers.append(queue)
        try:
            while (event := await queue.get()) is not None:
                await response.write(event if isinstance(event, bytes) else json.dumps(event).encode() + b"\n")
        except ConnectionResetError:
            pass
        finally:
            collection.watchers.remove(queue)
        return response

    def _put(self, plural: str, item: Json, namespace: str = "") -> Json:
        self.version = next(self.versions)
        metadata = {"namespace": namespace, **item["metadata"]}
        key = (metadata.get("namespace") or "", metadata["name"])
        there = self.collections[plural].objects.get(key)
        metadata.setdefault("uid", f"uid-{plural}-{metadata['name']}-{self.version}")
        metadata["resourceVersion"] = str(self.version)
        item = {**item, "metadata": metadata}
        self.collections[plural].objects[key] = item
        self._note(plural, {"type": "MODIFIED" if there else "ADDED", "object": item})
        return item

    def _remove(self, plural: str, key: tuple[str, str], silently: bool) -> None:
        item = self.collections[plural].objects.pop(key)
        self.version = next(self.versions)
        if not silently:
            item = {**item, "metadata": {**item["metadata"], "resourceVersion": str(self.version)}}
            self._note(plural, {"type": "DELETED", "object": item})

    def _note(self, plural: str, event: Json) -> None:
        self.collections[plural].history.append((self.version, event))
        self._tell(plural, event)

    def _tell(self, plural: str, event: Line) -> None:
        for queue in self.collections[plural].watchers:
            queue.put_nowait(event)

    def _compact(self) -> None:
        self.version = self.oldest = next(self.versions)
        for collection in self.collections.values():
            collection.history.clear()


def _merge(old: Any, patch: Any) -> Any:
    if not isinstance(patch, dict):
        return patch
    merged = dict(old) if isinstance(old, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merge(merged.get(key), value)
    return merged
