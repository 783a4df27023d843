"""Labels of namespaces, as far as rendering depends on them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Final

from meshwright.cluster.api import ApiServer
from meshwright.cluster.errors import Forbidden, NotFound
from meshwright.cluster.resources import NAMESPACES

REMEMBERED_SECONDS: Final = 60.0


class Namespaces:
    """Reads a namespace's labels when a gang is rendered there, at most once a minute."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api
        self._known: dict[str, tuple[float, Mapping[str, str]]] = {}

    async def labels(self, name: str) -> Mapping[str, str]:
        """The labels; none if the namespace is gone or may not be read."""
        now = time.monotonic()
        known = self._known.get(name)
        if known is None or now - known[0] > REMEMBERED_SECONDS:
            try:
                namespace = await self._api.get(NAMESPACES, None, name)
            except (NotFound, Forbidden):
                namespace = {}
            known = self._known[name] = (now, (namespace.get("metadata") or {}).get("labels") or {})
        return known[1]
