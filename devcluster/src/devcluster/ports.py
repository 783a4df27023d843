"""TCP ports of this machine."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager


def free_port() -> int:
    """A port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def hold(port: int = 0) -> socket.socket:
    """Binds a port without listening on it, by default one that is free.

    With SO_REUSEPORT other programs of this user that ask for it, too, may listen on it, and nobody else is given it.

    Raises:
        OSError: somebody has it.
    """
    held = socket.socket()
    try:
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        held.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        raise
    return held


@contextmanager
def held(count: int) -> Iterator[Sequence[int]]:
    """Holds so many free ports of this process's network."""
    with ExitStack() as stack:
        yield [stack.enter_context(hold()).getsockname()[1] for _ in range(count)]
