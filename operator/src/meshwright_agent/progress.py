"""The socket on which the pod's processes tell how far they are.

A datagram is one JSON object, so a script needs no library for it and never waits: where nobody listens, or the queue
is full, the datagram is refused and the training goes on.
"""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading

from meshwright_agent.errors import Malformed
from meshwright_agent.wire import MAX_PROGRESS, Progress, parse_object

_LONGEST_PATH = 100
"""The kernel takes 107 bytes."""
_FOLDERS = ("/tmp", "/dev/shm")


class ProgressSocket:
    """Takes progress from the pod's processes.

    Attributes:
        path: Where it listens; empty where no folder could be written, which is no reason not to train.
        malformed: Datagrams that were dropped.
    """

    def __init__(self) -> None:
        self.path = ""
        self.malformed = 0
        self._latest = Progress()
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._folder = ""
        self._closing = False
        self._thread = threading.Thread(target=self._receive, name="progress", daemon=True)

    def bind(self) -> None:
        """Opens the socket; the processes may be started then."""
        for parent in (tempfile.gettempdir(), *_FOLDERS):
            try:
                # Only this user may enter: what is said here ends up in the job's status.
                folder = tempfile.mkdtemp(prefix="meshwright-", dir=parent)
            except OSError:
                continue
            path = os.path.join(folder, "agent")
            if len(os.fsencode(path)) <= _LONGEST_PATH and self._open(path):
                self.path, self._folder = path, folder
                return
            shutil.rmtree(folder, ignore_errors=True)

    def start(self) -> None:
        """Begins to listen; called once the processes are started, since a process with threads must not fork."""
        if self._socket is not None:
            self._thread.start()

    def latest(self) -> Progress:
        """What is known by now."""
        with self._lock:
            return self._latest

    def close(self) -> None:
        """Stops listening and removes the socket."""
        if self._socket is None or self._closing:
            return
        self._closing = True
        self._socket.shutdown(socket.SHUT_RDWR)  # What was sent before is still read.
        if self._thread.ident is not None:
            self._thread.join(1.0)
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def take(self, datagram: bytes) -> None:
        """Notes one datagram; one that cannot be read changes nothing."""
        try:
            said = Progress.read(parse_object(datagram, MAX_PROGRESS))
        except Malformed:
            self.malformed += 1
            return
        with self._lock:
            self._latest = said.over(self._latest)

    def _open(self, path: str) -> bool:
        opened = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            opened.bind(path)
        except OSError:
            opened.close()
            return False
        self._socket = opened
        return True

    def _receive(self) -> None:
        assert self._socket is not None
        while True:
            # One byte more than allowed, so that a datagram that was cut is seen to be too long.
            datagram = self._socket.recv(MAX_PROGRESS + 1)
            if datagram:
                self.take(datagram)
            elif self._closing:
                return
