"""The keys by which agents of one attempt know each other.

One master key, 32 random bytes, lives in one Secret beside the operator; what agents get is derived from it, for their
job and attempt only. Nothing is stored per job, every leader derives the same, and an old attempt's key opens nothing.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import secrets
from typing import Final

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import AlreadyExists, ApiError, Conflict, NotFound
from meshwright.cluster.resources import SECRETS
from meshwright.heartbeats.errors import NotReady

logger = logging.getLogger(__name__)

ENTRY: Final = "master"
BYTES: Final = 32


def secret_name(lease_name: str) -> str:
    """Name of the Secret, in the Lease's namespace; the chart ships it empty, and rights are to this name only."""
    return f"{lease_name}-keys"


def derive(master: bytes, job_uid: str, attempt: int) -> str:
    """The key of one attempt: HMAC-SHA-256 of UID and number, in hexadecimal."""
    return hmac.new(master, f"{job_uid}\n{attempt}".encode(), hashlib.sha256).hexdigest()


class MasterKey:
    """The master key; read once, made by the first leader that finds none."""

    def __init__(self, api: ApiServer, namespace: str, name: str) -> None:
        self._api, self._namespace, self._name = api, namespace, name
        self._lock = asyncio.Lock()
        self._master = b""

    async def for_attempt(self, job_uid: str, attempt: int) -> str:
        """The key of one attempt of a job.

        Raises:
            NotReady: the Secret can be neither read nor written.
        """
        async with self._lock:  # A job's agents all come at once, and one of them is enough to read it.
            if not self._master:
                try:
                    self._master = await self._load()
                except ApiError as error:
                    logger.warning("cannot use the Secret %s/%s: %s", self._namespace, self._name, error)
                    raise NotReady("the operator has no keys yet") from error
        return derive(self._master, job_uid, attempt)

    async def _load(self) -> bytes:
        """Reads the key; makes one where there is none, or one that cannot be used.

        Raises:
            ApiError: somebody else was quicker, or it is forbidden; it can be tried again.
        """
        try:
            secret = await self._api.get(SECRETS, self._namespace, self._name)
        except NotFound:
            return await self._make()
        master = _decode(secret)
        if not master:
            return await self._fill(secret)
        return master

    async def _make(self) -> bytes:
        master = secrets.token_bytes(BYTES)
        metadata = {"name": self._name, "namespace": self._namespace}
        body: Json = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": _encode(master)}
        try:
            await self._api.create(SECRETS, self._namespace, body)
        except AlreadyExists:
            raise Conflict(409, "Conflict", "somebody else has just made it") from None
        return master

    async def _fill(self, secret: Json) -> bytes:
        # Its version goes along, so of two leaders that both find it empty one is refused and reads the other's.
        master = secrets.token_bytes(BYTES)
        body = {**secret, "data": {**(secret.get("data") or {}), **_encode(master)}}
        await self._api.replace(SECRETS, self._namespace, self._name, body)
        return master


def _encode(master: bytes) -> dict[str, str]:
    return {ENTRY: base64.b64encode(master).decode()}


def _decode(secret: Json) -> bytes:
    try:
        master = base64.b64decode((secret.get("data") or {}).get(ENTRY) or "", validate=True)
    except (binascii.Error, ValueError):
        return b""
    return master if len(master) >= BYTES else b""
