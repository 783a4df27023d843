"""How this process proves who it is: by a pod's service account, or a kubeconfig (token, file, certificate, exec).

Tokens are short-lived: they are read again every minute, and at once when the API server rejects one. Both clients of
this process (ours and Kopf's) take the header from here, so a rotated token never ends either of them.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
from kubernetes.aio import config
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject

from meshwright import logs
from meshwright.cluster.errors import ConfigError

logger = logging.getLogger(__name__)

RELOAD_SECONDS = 60.0
"""How long a token is used before its file is looked at again; the kubelet rotates at 80 % of an hour or more."""

_READ_BYTES: Final = 2**21
"""More than the events of a watch have, so that each is read at once."""

Loader = Callable[[Configuration], Awaitable[None]]


class Credentials:
    """The `Authorization` header for the API server, kept fresh."""

    def __init__(self, load: Loader, clock: Callable[[], float] = time.monotonic) -> None:
        self.configuration = Configuration()
        # Go clients do not insist on RFC 5280's optional extensions, and many clusters' own CAs lack them.
        self.configuration.disable_strict_ssl_verification = True
        self._load = load
        self._clock = clock
        self._lock = asyncio.Lock()
        self._read_at = float("-inf")
        self._header: str | None = None

    @classmethod
    async def find(cls, kubeconfig: str | None = None, context: str | None = None) -> Credentials:
        """Credentials from the kubeconfig if one is named, else from the pod's service account.

        Raises:
            ConfigError: Neither can be read.
        """
        credentials = cls(_kubeconfig_loader(kubeconfig, context) if kubeconfig else _load_service_account)
        try:
            await credentials._read()
        except Exception as error:  # The loaders raise whatever a broken file makes them raise.
            source = kubeconfig or "the pod's service account"
            raise ConfigError(f"cannot read credentials from {source}: {error}") from error
        return credentials

    @property
    def server(self) -> str:
        """URL of the API server."""
        return str(self.configuration.host)

    @property
    def tls_name(self) -> str | None:
        """The name that the server's certificate must have, where that is not the one it is called by."""
        return self.configuration.tls_server_name or None

    async def header(self) -> str | None:
        """The current `Authorization` header, if there is one (a client certificate needs none)."""
        if self._clock() - self._read_at >= RELOAD_SECONDS:
            await self._reload_unless_newer_than(self._read_at)
        return self._header

    async def rejected(self, header: str | None) -> bool:
        """Takes note that the API server answered 401 to `header`; returns whether there is another one now."""
        if header == self._header:
            await self._reload_unless_newer_than(self._read_at)
        return header != self._header

    def session(self) -> aiohttp.ClientSession:
        """A session that trusts the cluster's CA; the caller sends the header and closes the session.

        A proxy that the environment names is looked up here, once. Left to the session, that would be done for every
        request, with a file of passwords read in a thread besides: more work than the request itself.
        """
        configuration = self.configuration
        return aiohttp.ClientSession(
            connector=self._connector(),
            proxy=configuration.proxy or _proxy_for(self.server),
            trust_env=False,
            read_bufsize=_READ_BYTES,
        )

    def authorized_session(self) -> aiohttp.ClientSession:
        """A session that authenticates by itself, for Kopf; whoever takes it closes it."""
        return aiohttp.ClientSession(connector=self._connector(), middlewares=(self._authorize,), trust_env=True)

    def _connector(self) -> aiohttp.TCPConnector:
        return aiohttp.TCPConnector(limit=0, ssl=self._tls())

    def _tls(self) -> ssl.SSLContext:
        context: ssl.SSLContext = RESTClientObject(self.configuration).ssl_context
        return context

    async def _authorize(
        self, request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType
    ) -> aiohttp.ClientResponse:
        header = await self.header()
        response = await self._send(request, handler, header)
        if response.status != 401:
            return response
        response.release()
        if not await self.rejected(header):
            # On a 401 Kopf logs in again without a pause, or gives up for good; a broken connection it waits out.
            raise aiohttp.ClientConnectionError("401: the API server rejects the token, and there is no newer one yet")
        return await self._send(request, handler, self._header)

    @staticmethod
    async def _send(
        request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType, header: str | None
    ) -> aiohttp.ClientResponse:
        if header is not None:
            request.headers["Authorization"] = header
        return await handler(request)

    async def _reload_unless_newer_than(self, read_at: float) -> None:
        async with self._lock:
            if self._read_at != read_at:
                return  # Somebody else has read it while this call waited for the lock.
            try:
                await self._read()
            except Exception as error:
                # A token file is missing for an instant while it is replaced; the old token may still do.
                self._read_at = self._clock()
                logger.warning("cannot read the credentials again, going on with the old ones: %s", error)

    async def _read(self) -> None:
        await self._load(self.configuration)
        self._read_at = self._clock()
        value = str(self.configuration.api_key.get("BearerToken") or "")
        scheme, _, secret = value.partition(" ")
        secret = secret.strip()  # Files end with a newline, headers must not.
        self._header = f"{scheme.capitalize()} {secret}" if secret else None
        if secret:
            logs.never_log(secret)


async def _load_service_account(configuration: Configuration) -> None:
    config.load_incluster_config(configuration, try_refresh_token=False)  # type: ignore[no-untyped-call]


def _proxy_for(server: str) -> str | None:
    """What HTTPS_PROXY and NO_PROXY say of a server."""
    parts = urlsplit(server)
    return None if proxy_bypass(parts.hostname or "") else getproxies().get(parts.scheme)


def _kubeconfig_loader(kubeconfig: str, context: str | None) -> Loader:
    async def load(configuration: Configuration) -> None:
        # A fresh loader each time: it re-reads inline tokens and token files, and re-runs exec plugins.
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=kubeconfig, context=context, client_configuration=configuration, persist_config=False
        )

    return load
