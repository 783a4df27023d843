"""What agents of one job say to each other, so that the operator hears one of them and not ten thousand.

Datagrams: one thread of rank 0's agent hears them all, there are no connections to run out of, and one that is lost is
followed by the next. Every one is signed with the key that the operator gives to the agents of an attempt, numbered so
that it counts once, and not answered at all if the signature is wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from meshwright_agent.errors import Malformed
from meshwright_agent.plan import Plan
from meshwright_agent.wire import Answer, Checkpoint, Progress, Report, dump, parse_object

MAX_DATAGRAM = 8 * 1024
MISSED_BEATS = 3
"""After so many intervals without a word somebody counts as silent."""
ANSWER_SECONDS = 2.0
_SEAL = 64
"""Bytes of a signature: SHA-256, in hexadecimal."""


def seal(key: str, body: bytes, context: bytes = b"") -> bytes:
    """A signed datagram; `context` is what it answers to."""
    return _signature(key, body, context) + body


def unseal(key: str, datagram: bytes, context: bytes = b"") -> bytes:
    """The body of a signed datagram.

    Raises:
        Malformed: it was not signed with this key, or for something else.
    """
    signature, body = datagram[:_SEAL], datagram[_SEAL:]
    if not hmac.compare_digest(signature, _signature(key, body, context)):
        raise Malformed("the signature is wrong")
    return body


def _signature(key: str, body: bytes, context: bytes) -> bytes:
    # With the context's length, or a part of one could pass for a part of the other.
    text = b"%d\n%b%b" % (len(context), context, body)
    return hmac.new(bytes.fromhex(key), text, hashlib.sha256).hexdigest().encode()


class Gathering:
    """What rank 0's agent has heard of the other pods; its size is bounded by the plan. Time is passed in."""

    def __init__(self, plan: Plan, interval_seconds: float) -> None:
        self._plan = plan
        self._patience = MISSED_BEATS * interval_seconds
        self._lock = threading.Lock()
        self._heard: dict[tuple[str, int], tuple[int, float, int | None]] = {}
        self._progress = Progress()

    def note(self, report: Report, number: int, now: float) -> bool:
        """Takes in another pod's report; False if it is of no pod of this attempt, or has been heard before."""
        if report.attempt != self._plan.attempt or not self._plan.has(report.role, report.index):
            return False
        who = (report.role, report.index)
        with self._lock:
            known = self._heard.get(who)
            if known is not None and number <= known[0]:
                return False
            self._heard[who] = (number, now, report.progress.step)
            self._progress = _with_newest_checkpoint(report.progress.over(self._progress), self._progress)
        return True

    def combined(self, own: Report, now: float) -> Report:
        """One report for all pods. Rank 0's own figures win; others fill in what it does not say."""
        with self._lock:
            present = [step for _, at, step in self._heard.values() if now - at <= self._patience]
            others = self._progress
        steps = [step for step in (*present, own.progress.step) if step is not None]
        return replace(
            own,
            heard=1 + len(present),
            min_step=min(steps, default=None),
            max_step=max(steps, default=None),
            progress=_with_newest_checkpoint(own.progress.over(others), others),
        )


class Listener:
    """The socket of rank 0's agent.

    Args:
        port: UDP port, on all addresses.
        gathering: Where reports are noted.
        key: Says the current key; empty while there is none.
        answer: Says what the operator answered last.
        clock: Monotonic seconds.
    """

    def __init__(
        self,
        port: int,
        gathering: Gathering,
        key: Callable[[], str],
        answer: Callable[[], Answer],
        clock: Callable[[], float],
    ) -> None:
        self._gathering = gathering
        self._key, self._answer, self._clock = key, answer, clock
        self._socket = _any_address(port)
        self._thread = threading.Thread(target=self._listen, name="relay", daemon=True)
        self._closing = False

    def start(self) -> None:
        """Begins to listen."""
        self._thread.start()

    def close(self) -> None:
        """Ends listening."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # Not connected, it says; the thread wakes all the same.
        self._thread.join(1.0)
        self._socket.close()

    def _listen(self) -> None:
        while not self._closing:
            try:
                datagram, sender = self._socket.recvfrom(MAX_DATAGRAM)
                reply = self._reply(datagram)
                if reply:
                    self._socket.sendto(reply, sender)
            except OSError:
                continue  # An earlier answer found nobody, or this is the end.

    def _reply(self, datagram: bytes) -> bytes:
        key = self._key()
        if not key:
            return b""
        try:
            body = unseal(key, datagram)
            number = parse_object(body, MAX_DATAGRAM).get("number")
            report = Report.parse(body)
        except Malformed:
            return b""
        if not isinstance(number, int) or not self._gathering.note(report, number, self._clock()):
            return b""
        return seal(key, dump({**self._answer().to_json(), "key": ""}), datagram[:_SEAL])


class Caller:
    """How the other agents reach rank 0's."""

    def __init__(self, port: int, timeout_seconds: float = ANSWER_SECONDS) -> None:
        self._port = port
        self._timeout = timeout_seconds
        self._number = 0

    def call(self, report: Report, key: str, host: str) -> Answer | None:
        """Sends a report to rank 0's agent; None if it does not answer in time."""
        self._number += 1
        body: dict[str, Any] = {**report.to_json(), "number": self._number}
        datagram = seal(key, dump(body))
        try:
            family, _, _, _, address = socket.getaddrinfo(host, self._port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as sent:
                sent.settimeout(self._timeout)
                sent.connect(address)  # From then on only that address is heard.
                sent.send(datagram)
                return Answer.parse(unseal(key, sent.recv(MAX_DATAGRAM), datagram[:_SEAL]))
        except (OSError, ValueError, Malformed):  # ValueError: no name that could be looked up.
            return None


def _any_address(port: int) -> socket.socket:
    """A socket on all addresses of both families, where there are both."""
    try:
        opened = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        try:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            opened.bind(("::", port))
        except OSError:
            opened.close()
            raise
    except OSError:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.bind(("", port))
        except OSError:
            opened.close()
            raise
    return opened


def _with_newest_checkpoint(progress: Progress, other: Progress) -> Progress:
    found: list[Checkpoint] = [c for c in (progress.checkpoint, other.checkpoint) if c is not None]
    return replace(progress, checkpoint=max(found, key=lambda c: c.step, default=None))
