"""The socket that takes progress: from many processes, whatever they send."""

from __future__ import annotations

import json
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from meshwright_agent.progress import ProgressSocket
from meshwright_agent.wire import MAX_PROGRESS
from tests.agent.conftest import soon


@pytest.fixture
def taken() -> Iterator[ProgressSocket]:
    opened = ProgressSocket()
    opened.bind()
    opened.start()
    yield opened
    opened.close()
    assert not Path(opened.path).exists()


def send(path: str, *datagrams: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as client:
        for datagram in datagrams:
            client.sendto(datagram, path)


def test_what_is_said_in_pieces_adds_up(taken: ProgressSocket) -> None:
    send(taken.path, b'{"step": 3, "loss": 2.0}', b'{"checkpoint": {"step": 2, "time": 5}}', b'{"step": 4}')
    assert soon(lambda: taken.latest().step == 4)
    said = taken.latest()
    assert (said.loss, said.checkpoint and said.checkpoint.step) == (2.0, 2)


def test_nonsense_is_counted_and_changes_nothing(taken: ProgressSocket) -> None:
    send(taken.path, b'{"step": 3}', b"", b"nonsense", b'{"step": -1, "loss": 9}', b" " * MAX_PROGRESS + b"{}")
    send(taken.path, b'{"steps": 9}')
    assert soon(lambda: taken.latest().steps == 9)
    assert (taken.malformed, taken.latest().step, taken.latest().loss) == (3, 3, None)


def test_only_the_pods_user_may_speak(taken: ProgressSocket) -> None:
    assert stat.S_IMODE(os.stat(os.path.dirname(taken.path)).st_mode) == 0o700
    assert len(taken.path) < 100


def test_what_was_sent_before_the_end_is_read(taken: ProgressSocket) -> None:
    send(taken.path, *(json.dumps({"step": step}).encode() for step in range(5)))
    taken.close()
    assert taken.latest().step == 4


def test_a_long_temporary_folder_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 90)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    opened = ProgressSocket()
    opened.bind()
    assert opened.path.startswith("/tmp/")
    opened.close()
    assert list(long.iterdir()) == []


def test_without_any_folder_there_is_no_socket_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> str:
        raise OSError("read-only file system")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    opened = ProgressSocket()
    opened.bind()
    opened.start()
    assert opened.path == ""
    opened.close()
