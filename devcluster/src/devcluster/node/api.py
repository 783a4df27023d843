"""A small client of the API server on plain dicts."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

import aiohttp

from devcluster.node.errors import ApiError, ApiUnreachable
from devcluster.node.kubeconfig import Access

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_BACKOFF_SECONDS: Final = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
_SILENCE_SECONDS: Final = 90.0  # bookmarks come about once a minute, so a silent watch has died
_log = logging.getLogger(__name__)
T = TypeVar("T")
Object = dict[str, Any]


class Api:
    """Requests to one API server; used as an async context manager."""

    def __init__(self, access: Access, *, connections: int = 24) -> None:
        self.access = access
        self._connections = connections

    async def __aenter__(self) -> Self:
        headers = {"User-Agent": "devcluster-node"}
        if self.access.token:
            headers["Authorization"] = f"Bearer {self.access.token}"
        self._session = aiohttp.ClientSession(
            headers=headers,
            connector=aiohttp.TCPConnector(ssl=self.access.tls, limit=self._connections),
            timeout=aiohttp.ClientTimeout(total=30),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def request(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        content_type: str = "application/json",
        params: Mapping[str, str] | None = None,
    ) -> Object:
        """One request.

        Raises:
            ApiError: It was refused.
            ApiUnreachable: There was no answer, or one that may be better later.
        """
        data = None if body is None else json.dumps(body, separators=(",", ":"))
        headers = {"Content-Type": content_type} if data else {}
        try:
            async with self._session.request(
                method, self.access.server + path, data=data, headers=headers, params=params
            ) as response:
                text = await response.text()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnreachable(f"{method} {path}: {type(error).__name__} {error}") from None
        return _answer(response.status, text, f"{method} {path}")

    async def watch(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Object]:
        """The events of one watch request until the server ends it.

        Raises:
            ApiError: The watch was refused or ended with an ERROR event (410: list again).
            ApiUnreachable: The connection broke.
        """
        params = {**params, "watch": "true", "allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=_SILENCE_SECONDS)
        try:
            async with self._session.get(self.access.server + path, params=params, timeout=timeout) as response:
                if response.status != 200:
                    _answer(response.status, await response.text(), f"watch {path}")
                rest = b""
                async for chunk in response.content.iter_any():
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        event = json.loads(line)
                        if event["type"] == "ERROR":
                            raise _error(event["object"], event["object"].get("code", 500))
                        yield event
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ApiUnreachable(f"watch {path}: {type(error).__name__} {error}") from None


def _answer(status: int, text: str, what: str) -> Object:
    try:
        document: Object = json.loads(text) if text else {}
    except ValueError:
        document = {"message": text[:200]}
    if status < 300:
        return document
    if status in (401, 429) or status >= 500:
        raise ApiUnreachable(f"{what}: {status} {document.get('message', '')}")
    raise _error(document, status)


def _error(document: Object, status: int) -> ApiError:
    return ApiError(status, str(document.get("reason", "")), str(document.get("message", "")))


def backoff(attempt: int) -> float:
    """Seconds to wait after the attempt of that number (from 0) has failed; never more than five."""
    return _BACKOFF_SECONDS[min(attempt, len(_BACKOFF_SECONDS) - 1)]


async def until_answered(call: Callable[[], Awaitable[T]]) -> T:
    """Repeats `call` while the API server is out of reach, for ever.

    Raises:
        ApiError: The API server answered, and refused.
    """
    attempt = 0
    while True:
        try:
            return await call()
        except ApiUnreachable as error:
            if attempt in (0, 5) or attempt % 60 == 0:  # an outage shall not fill the disk
                _log.warning("%s; trying again", error)
            await asyncio.sleep(backoff(attempt))
            attempt += 1
