"""The administrator's own view of the API server, apart from the operator's client and caches: who judges must not ask
the judged."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

import aiohttp

Json = dict[str, Any]

JOBS: Final = "/apis/meshwright.dev/v1alpha1"
CORE: Final = "/api/v1"
_MERGE: Final = "application/merge-patch+json"


class Refused(Exception):
    """The API server refused a call of the administrator."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status


class Admin:
    """A small asynchronous client with every right."""

    def __init__(self, server: str, ca: Path, token: str) -> None:
        self._server, self._ca, self._token = server, ca, token

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=64, ssl=ssl.create_default_context(cafile=str(self._ca))),
            headers={"Authorization": f"Bearer {self._token}"},
            timeout=aiohttp.ClientTimeout(total=30),
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def call(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Json:
        """One call.

        Raises:
            Refused: The server refused.
        """
        data = None if body is None else json.dumps(body)
        async with self._session.request(
            method, self._server + path, data=data, headers={"Content-Type": content_type}
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise Refused(answer.status, text)
            return dict(json.loads(text))

    async def create(self, path: str, body: Json) -> Json:
        """Creates an object in a collection."""
        return await self.call("POST", path, body)

    async def patch(self, path: str, patch: Json) -> Json:
        """Applies a merge patch."""
        return await self.call("PATCH", path, patch, _MERGE)

    async def annotate(self, path: str, annotations: Mapping[str, str | None]) -> None:
        """Sets or removes annotations; that the object is gone meanwhile is no error."""
        with suppress(Refused):
            await self.patch(path, {"metadata": {"annotations": dict(annotations)}})

    async def delete(self, path: str, body: Any = None) -> None:
        """Deletes an object; that it is gone is no error."""
        try:
            await self.call("DELETE", path, body)
        except Refused as error:
            if error.status != 404:
                raise

    async def items(self, path: str) -> list[Json]:
        """A list."""
        return list((await self.call("GET", path))["items"])

    async def follow(self, path: str) -> AsyncIterator[tuple[str, Json]]:
        """Everything in a collection, now and later: (`ADDED` | `MODIFIED` | `DELETED` | `LISTED`, object).

        After each list, `LISTED` comes with the list as its object, so that the reader can tell what is gone.
        """
        while True:
            with suppress(aiohttp.ClientError, TimeoutError, Refused):
                listing = await self.call("GET", path)
                yield "LISTED", listing
                version = listing["metadata"]["resourceVersion"]
                async for kind, item in self._watch(path, version):
                    if kind == "ERROR":
                        break
                    yield kind, item
            await asyncio.sleep(0.1)

    async def _watch(self, path: str, version: str) -> AsyncIterator[tuple[str, Json]]:
        query = f"{'&' if '?' in path else '?'}watch=1&resourceVersion={version}&timeoutSeconds=3000"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with self._session.get(self._server + path + query, timeout=timeout) as answer:
            rest = b""
            async for chunk in answer.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = json.loads(line)
                    yield event["type"], event["object"]
