"""Addresses for pods: a block per node program, an address per pod.

Process pods need addresses that this machine has: 127.B.x.y, of which Linux owns the whole. Fake pods get 10.B.x.y.
B is claimed by a bound UDP socket: no two programs of this machine have the same, and the claim dies with its owner.
"""

from __future__ import annotations

import socket
from typing import Final

from devcluster.node.errors import NodeError

_CLAIM_PORT: Final = 40127
_FIRST, _LAST = 16, 250  # below are addresses that other software likes
_SERVICES: Final = 96  # 10.96 is the usual range of Services
_PER_BLOCK: Final = 250 * 250


class Block:
    """One program's addresses."""

    def __init__(self) -> None:
        self._claim, self.number = _claim()
        self._next = 0
        self._used: set[str] = set()

    def take(self, network: int) -> str:
        """An address in `network` (127 or 10) that was not used for as long as possible."""
        for _ in range(_PER_BLOCK):
            address = f"{network}.{self.number}.{self._next // 250}.{self._next % 250 + 1}"
            self._next = (self._next + 1) % _PER_BLOCK
            if address not in self._used:
                self._used.add(address)
                return address
        raise NodeError("no address is left for another pod")

    def keep(self, address: str) -> None:
        """Notes that an address is in use."""
        self._used.add(address)

    def give_back(self, address: str) -> None:
        """Frees an address."""
        self._used.discard(address)

    def close(self) -> None:
        """Gives up the whole block."""
        self._claim.close()


def _claim() -> tuple[socket.socket, int]:
    for number in range(_FIRST, _LAST):
        if number == _SERVICES:
            continue
        claim = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            claim.bind((f"127.{number}.255.254", _CLAIM_PORT))
        except OSError:
            claim.close()
        else:
            return claim, number
    raise NodeError(f"every block of addresses is taken (UDP port {_CLAIM_PORT} on 127.{_FIRST}-{_LAST}.255.254)")
