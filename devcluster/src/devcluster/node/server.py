"""The nodes' HTTPS endpoint: `kubectl logs` reaches it through the API server."""

from __future__ import annotations

import ssl
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from aiohttp import web

from devcluster.node.errors import NodeError, NoLog
from devcluster.node.logs import LogRequest, parse_request

FindLog = Callable[[str, str, str, LogRequest], AsyncIterator[bytes]]
"""Namespace, pod, container and what is wanted, to the log; raises NoLog."""


class LogServer:
    """Serves `/containerLogs/NAMESPACE/POD/CONTAINER` for all nodes of this program."""

    def __init__(self, find: FindLog, certificate: Path, key: Path, client_ca: Path | None) -> None:
        self._find = find
        self._tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            self._tls.load_cert_chain(certificate, key)
            if client_ca:
                self._tls.load_verify_locations(client_ca)
                self._tls.verify_mode = ssl.CERT_REQUIRED
        except OSError as error:
            raise NodeError(f"cannot use the certificate {certificate} with {key}: {error}") from None
        self._runner: web.AppRunner | None = None

    async def start(self, address: str) -> int:
        """Listens at a port of its own choice; returns it."""
        app = web.Application()
        app.router.add_get("/containerLogs/{namespace}/{pod}/{container}", self._logs)
        app.router.add_get("/healthz", _healthy)
        for command in ("exec", "attach", "portForward", "run"):
            app.router.add_route("*", f"/{command}/{{rest:.*}}", _not_here)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=1.0)
        await self._runner.setup()
        await web.TCPSite(self._runner, address, 0, ssl_context=self._tls).start()
        return int(self._runner.addresses[0][1])

    async def stop(self) -> None:
        """Stops listening."""
        if self._runner:
            await self._runner.cleanup()

    async def _logs(self, request: web.Request) -> web.StreamResponse:
        try:
            wanted = parse_request(request.query, time.time())
        except ValueError as error:
            return web.Response(status=400, text=str(error))
        where = request.match_info
        try:
            pieces = self._find(where["namespace"], where["pod"], where["container"], wanted)
        except NoLog as problem:
            return web.Response(status=problem.status, text=str(problem))
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        async for piece in pieces:
            await response.write(piece)
        await response.write_eof()
        return response


async def _healthy(_: web.Request) -> web.Response:
    return web.Response(text="ok")


async def _not_here(request: web.Request) -> web.Response:
    command = request.path.split("/")[1]
    text = f"{command} is not implemented by the process and fake nodes of the dev cluster\n"
    return web.Response(status=501, text=text)
