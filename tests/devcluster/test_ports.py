"""Ports that are held are shared with who asks for it, and given to nobody by chance."""

from __future__ import annotations

import socket

import pytest

from devcluster.ports import held, hold


def test_a_held_port_is_shared_by_those_who_say_so_and_free_afterwards() -> None:
    with held(2) as (port, other):
        assert port != other
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        with hold(port) as program:
            program.listen()
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", other))


def test_a_port_that_somebody_has_is_refused() -> None:
    with socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        with pytest.raises(OSError, match="in use"):
            hold(stranger.getsockname()[1])
