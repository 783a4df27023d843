"""List and watch: tells what exists, what changed and what is gone, across any outage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final

from devcluster.node.api import Api, Object, backoff
from devcluster.node.errors import ApiError, ApiUnreachable

_WATCH_SECONDS: Final = 290
_GONE: Final = 410
_log = logging.getLogger(__name__)


class Reflector:
    """Keeps up with one collection.

    `changed` gets every object as it is now, at least once per version seen; `gone` gets the last version of one that
    no longer exists, also when that was only found out by comparing a new list with what was known.

    Attributes:
        synced: Set once the first list has been delivered.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        *,
        changed: Callable[[Object], None],
        gone: Callable[[Object], None],
        selector: Mapping[str, str] | None = None,
    ) -> None:
        self._api, self._path, self._selector = api, path, dict(selector or {})
        self._changed, self._gone = changed, gone
        self._known: dict[str, Object] = {}
        self.synced = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled; no error of the API server ends it."""
        attempt = 0
        while True:
            try:
                version = await self._list()
                attempt = 0
                while True:
                    version = await self._watch(version)
            except (ApiError, ApiUnreachable) as error:
                expired = isinstance(error, ApiError) and error.status == _GONE
                if not expired and attempt in (0, 5):
                    _log.warning("%s; listing again", error)
                await asyncio.sleep(0.0 if expired else backoff(attempt))
                attempt += 1

    async def _list(self) -> str:
        answer = await self._api.request("GET", self._path, params=self._selector)
        before, self._known = self._known, {item["metadata"]["uid"]: item for item in answer["items"]}
        for uid, old in before.items():
            if uid not in self._known:
                _deliver(self._gone, old)
        for uid, item in self._known.items():
            if uid not in before or before[uid]["metadata"]["resourceVersion"] != item["metadata"]["resourceVersion"]:
                _deliver(self._changed, item)
        self.synced.set()
        return str(answer["metadata"]["resourceVersion"])

    async def _watch(self, version: str) -> str:
        params = {**self._selector, "resourceVersion": version, "timeoutSeconds": str(_WATCH_SECONDS)}
        async for event in self._api.watch(self._path, params):
            item = event["object"]
            version = item["metadata"]["resourceVersion"]
            if event["type"] in ("ADDED", "MODIFIED"):
                self._known[item["metadata"]["uid"]] = item
                _deliver(self._changed, item)
            elif event["type"] == "DELETED":
                self._known.pop(item["metadata"]["uid"], None)
                _deliver(self._gone, item)
        return version


def _deliver(callback: Callable[[Object], None], item: Object) -> None:
    try:
        callback(item)
    except Exception:  # one object that is not understood must not make us blind for the others
        _log.exception("%s/%s", item["metadata"].get("namespace", ""), item["metadata"].get("name"))
