"""`ApiServer`: dicts in, dicts out, errors as one tree, and a fence in front of every write.

Typed models of the official client cost three times the memory of dicts and refuse what a newer server says, so only
its configuration is used. For a gang of thousands of pods this module is most of the operator's work: it does nothing
for each request that could be done once.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Protocol
from urllib.parse import urlencode

import aiohttp
import msgspec

from meshwright.cluster.credentials import Credentials
from meshwright.cluster.errors import Gone, NotFound, NotLeading, Unauthorized, Unreachable, from_status
from meshwright.cluster.resources import Resource
from meshwright.cluster.shapes import WHOLE, Reader
from meshwright_api import names

Json = dict[str, Any]
Query = Mapping[str, str | int]

USER_AGENT: Final = f"{names.FIELD_MANAGER}-operator"
JSON: Final = "application/json"
METADATA_ONLY: Final = f"{JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{JSON}"
"""Asks for an object's metadata alone; what cannot answer so answers in full."""
MERGE_PATCH: Final = "application/merge-patch+json"
PAGE_SIZE: Final = 500
CONNECT_SECONDS: Final = 5.0
"""No more than the lease outlives the renew deadline: a write that passed the fence is sent while the lease is ours."""


class Observer(Protocol):
    """Who wants to know about finished requests (the metrics)."""

    def api_request(self, verb: str, resource: str, code: int, seconds: float) -> None:
        """One request is over; `code` is 0 when no answer came."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A whole list as of one resource version."""

    items: list[Json]
    resource_version: str


class ApiServer:
    """The API server, through one shared client.

    Attributes:
        before_write: Called immediately before every mutating request is sent; raises to forbid it.
    """

    def __init__(
        self,
        credentials: Credentials,
        *,
        observer: Observer | None = None,
        concurrency: int = 32,
        timeout: float = 30.0,
    ) -> None:
        self.credentials = credentials
        self.before_write: Callable[[], None] = lambda: None
        self._session = credentials.session()
        self._observer = observer
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout = timeout

    async def close(self) -> None:
        """Closes the connections."""
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Query | None = None,
        body: Json | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        timeout: float | None = None,
        fenced: bool | None = None,
        urgent: bool = False,
        label: tuple[str, str] = ("", ""),
        reader: Reader = WHOLE,
    ) -> Json:
        """Sends one request and returns the parsed answer.

        Args:
            method: HTTP method.
            path: Path from the server's root.
            query: Query parameters.
            body: Sent as JSON.
            content_type: Differs for patches.
            accept: In which form the answer is wanted.
            timeout: Seconds for the whole request.
            fenced: Whether `before_write` is asked; by default for everything that is no GET.
            urgent: Does not queue behind other requests (the lease's renewal).
            label: Verb and resource, for the metrics.
            reader: Reads the answer, if it is a success.

        Raises:
            ApiError: Anything but success, translated.
        """
        fence = self.before_write if (method != "GET" if fenced is None else fenced) else None
        limits = aiohttp.ClientTimeout(total=timeout or self._timeout, connect=CONNECT_SECONDS)
        async with self._slot(urgent):
            with self._measured(*(label if label[0] else (method.lower(), label[1]))) as outcome:
                response = await self._send(method, path, query, body, content_type, accept, limits, fence)
                outcome.append(response.status)
                return await _read(response, reader)

    @contextmanager
    def _measured(self, verb: str, resource: str) -> Iterator[list[int]]:
        """Translates what is no answer, and tells the observer how the request ended, unless it was never sent."""
        started, outcome = asyncio.get_running_loop().time(), list[int]()
        try:
            yield outcome
        except NotLeading:
            raise
        except (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError) as error:
            self._observe(verb, resource, 0, started)
            raise Unreachable(0, type(error).__name__, str(error)) from error
        except BaseException:
            self._observe(verb, resource, outcome[-1] if outcome else 0, started)
            raise
        else:
            self._observe(verb, resource, outcome[-1], started)

    def _observe(self, verb: str, resource: str, code: int, started: float) -> None:
        if self._observer is not None:
            self._observer.api_request(verb, resource, code, asyncio.get_running_loop().time() - started)

    async def lines(self, path: str, *, query: Query, silence: float) -> AsyncGenerator[bytes, None]:
        """The lines of an endless answer (a watch), of any length.

        Args:
            path: Path from the server's root.
            query: Query parameters.
            silence: Seconds without a byte after which the stream counts as dead.

        Raises:
            ApiError: The stream was refused, broke, or fell silent. A stream that ends properly just ends.
        """
        limits = aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS, sock_read=silence)
        try:
            response = await self._send("GET", path, query, None, JSON, JSON, limits, None)
            async with response:
                if response.status >= 400:
                    await _read(response)
                async for line in _split(response.content):
                    yield line
        except (aiohttp.ClientError, TimeoutError, OSError, ssl.SSLError) as error:
            raise Unreachable(0, type(error).__name__, str(error)) from error

    async def get(self, resource: Resource, namespace: str | None, name: str, **options: Any) -> Json:
        """One object, as fresh as the server has it."""
        return await self.request("GET", resource.path(namespace, name), label=("get", resource.plural), **options)

    async def pages(
        self, resource: Resource, namespace: str | None = None, *, query: Query | None = None, reader: Reader = WHOLE
    ) -> AsyncIterator[Json]:
        """A list in pages, all of one resource version; the caller need not hold more than one.

        Args:
            resource: The kind.
            namespace: Of the objects; None for all.
            query: More query parameters.
            reader: Reads each page.

        Raises:
            Gone: The list took so long that its continue token expired; begin again.
        """
        wanted = {"limit": PAGE_SIZE, **(query or {})}
        while True:
            page = await self.request(
                "GET", resource.path(namespace), query=wanted, label=("list", resource.plural), reader=reader
            )
            yield page
            token = (page.get("metadata") or {}).get("continue")
            if not token:
                return
            # With a token the server takes the version from it, and refuses to be told another.
            wanted = {k: v for k, v in wanted.items() if not k.startswith("resourceVersion")} | {"continue": token}

    async def list(self, resource: Resource, namespace: str | None = None, *, query: Query | None = None) -> Listing:
        """All objects of a collection, of one resource version."""
        for _ in range(3):
            items: list[Json] = []
            version = ""
            try:
                async for page in self.pages(resource, namespace, query=query):
                    items += page.get("items") or []
                    version = version or str((page.get("metadata") or {}).get("resourceVersion") or "")
            except Gone:
                continue
            return Listing(items, version)
        raise Gone(410, "Expired", f"the list of {resource.plural} expired three times while it was read")

    async def create(self, resource: Resource, namespace: str | None, body: Json, **options: Any) -> Json:
        """Creates an object."""
        return await self.request(
            "POST",
            resource.path(namespace),
            query={"fieldManager": names.FIELD_MANAGER},
            body=body,
            label=("create", resource.plural),
            **options,
        )

    async def replace(self, resource: Resource, namespace: str | None, name: str, body: Json, **options: Any) -> Json:
        """Replaces an object; the resource version in `body` makes it conditional."""
        return await self.request(
            "PUT",
            resource.path(namespace, name),
            query={"fieldManager": names.FIELD_MANAGER},
            body=body,
            label=("update", resource.plural),
            **options,
        )

    async def patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Json,
        *,
        subresource: str | None = None,
        **options: Any,
    ) -> Json:
        """Applies a merge patch."""
        plural = f"{resource.plural}/{subresource}" if subresource else resource.plural
        return await self.request(
            "PATCH",
            resource.path(namespace, name, subresource),
            query={"fieldManager": names.FIELD_MANAGER},
            body=patch,
            content_type=MERGE_PATCH,
            label=("patch", plural),
            **options,
        )

    async def patch_status(
        self, resource: Resource, namespace: str, name: str, patch: Json, *, resource_version: str
    ) -> Json:
        """Merges `patch` into the status, only if the object still is what the decision was made from.

        Raises:
            Conflict: It has changed since `resource_version`.
        """
        body = {"metadata": {"resourceVersion": resource_version}, "status": patch}
        return await self.patch(resource, namespace, name, body, subresource="status")

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str,
        grace_seconds: int | None = None,
        propagation: str = "Background",
    ) -> None:
        """Deletes exactly the object with this UID; that it is gone already is success.

        Raises:
            Conflict: Another object has the name now.
        """
        options: Json = {"preconditions": {"uid": uid}, "propagationPolicy": propagation}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        with suppress(NotFound):
            await self.request(
                "DELETE", resource.path(namespace, name), body=options, label=("delete", resource.plural)
            )

    def _slot(self, urgent: bool) -> AbstractAsyncContextManager[None]:
        return nullcontext() if urgent else self._slots

    async def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: Json | None,
        content_type: str,
        accept: str,
        limits: aiohttp.ClientTimeout,
        fence: Callable[[], None] | None,
    ) -> aiohttp.ClientResponse:
        url = self.credentials.server + path + (_query_text(tuple(query.items())) if query else "")
        data = None if body is None else msgspec.json.encode(body)
        header = await self.credentials.header()
        while True:
            headers = {"Content-Type": content_type, "Accept": accept, "User-Agent": USER_AGENT}
            if header is not None:
                headers["Authorization"] = header
            if fence is not None:
                fence()
            response = await self._session.request(
                method, url, data=data, headers=headers, timeout=limits, server_hostname=self.credentials.tls_name
            )
            if response.status != 401 or not await self.credentials.rejected(header):
                return response
            response.release()
            header = await self.credentials.header()


async def _read(response: aiohttp.ClientResponse, reader: Reader = WHOLE) -> Json:
    """The parsed answer; raises what a failure means."""
    raw = await response.read()
    try:
        body = (reader if response.status < 400 else WHOLE).read(raw) if raw else {}
    except ValueError:
        body = raw[:200].decode(errors="replace")
    if response.status < 400 and isinstance(body, dict):
        return body
    if response.status == 401:
        raise Unauthorized(401, "Unauthorized", "the API server rejects the token, and there is no newer one yet")
    code = response.status if response.status >= 400 else 502  # Something that is no API server answered.
    raise from_status(code, body, _seconds(response.headers.get("Retry-After")))


@lru_cache(maxsize=64)
def _query_text(query: tuple[tuple[str, str | int], ...]) -> str:
    return f"?{urlencode(query)}"


def _seconds(text: str | None) -> float | None:
    try:
        return max(0.0, float(text)) if text else None
    except ValueError:
        return None  # An HTTP date; API servers never send one, proxies may.


async def _split(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Lines of any length; aiohttp's own iteration fails beyond its buffer."""
    parts: list[bytes] = []
    async for chunk in content.iter_any():
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            parts.append(line)
            joined = b"".join(parts)
            parts.clear()
            if joined:
                yield joined
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)
