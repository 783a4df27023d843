"""Lets this machine reach ports of a cluster that has a network of its own.

`python -m devcluster.containers.forward NAMESPACE PORT...`, started in the cluster's network namespace, listens at
127.0.0.1 of the network namespace in the file NAMESPACE and connects to the same port of 127.0.0.1 in its own.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress

_LIBC = ctypes.CDLL(None, use_errno=True)
_CLONE_NEWNET = 0x40000000
_CHUNK = 1 << 16


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # the supervisor holds the port for us
    listening.bind(("127.0.0.1", port))
    listening.listen(1024)
    return listening


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while chunk := await reader.read(_CHUNK):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()


async def _serve(listening: socket.socket) -> None:
    port = listening.getsockname()[1]

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            writer.transport.abort()  # as refused as it can be made now
            return
        await asyncio.gather(_copy(reader, there_writer), _copy(there_reader, writer))
        for one in (writer, there_writer):
            one.close()

    async with await asyncio.start_server(carry, sock=listening) as server:
        await server.serve_forever()


async def _serve_all(listening: Sequence[socket.socket]) -> None:
    await asyncio.gather(*map(_serve, listening))


def main() -> None:
    """Listens outside, then connects inside: a socket stays in the namespace that it was made in."""
    inside = os.open("/proc/self/ns/net", os.O_RDONLY)
    outside = os.open(sys.argv[1], os.O_RDONLY)
    _enter(outside)
    listening = [_listen(int(port)) for port in sys.argv[2:]]
    _enter(inside)
    asyncio.run(_serve_all(listening))


if __name__ == "__main__":
    main()
