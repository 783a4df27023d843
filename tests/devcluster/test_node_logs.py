"""The log file, from the container's pipe to what `kubectl logs` shows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.node.fake import Ending, Script, parse_ending, parse_script
from devcluster.node.logs import LogRequest, last_lines, parse_request, read, tail_text
from devcluster.node.sandbox.logfile import LogFile


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    ends = os.pipe()
    yield ends
    os.close(ends[0])


def _write(path: Path, pipe: tuple[int, int], *chunks: bytes) -> None:
    log = LogFile(str(path))
    for chunk in chunks:
        os.write(pipe[1], chunk)
        assert log.take(pipe[0], "stdout")
    os.close(pipe[1])
    assert not log.take(pipe[0], "stdout")
    log.close()


async def _shown(path: Path, **request: object) -> bytes:
    pieces = read(path, LogRequest(**request), lambda: True)  # type: ignore[arg-type]
    return b"".join([piece async for piece in pieces])


async def test_what_goes_in_comes_out(tmp_path: Path, pipe: tuple[int, int]) -> None:
    path = tmp_path / "log"
    text = b"one\n\nthree" + b"x" * 20000 + b"\r\nw\xff\xfe\nno newline"
    _write(path, pipe, text[:5], text[5:9000], text[9000:])
    assert await _shown(path) == text
    assert await _shown(path, follow=True) == text
    assert await _shown(path, limit_bytes=6) == text[:6]
    assert await _shown(path, since=4e9) == b""


async def test_the_tail_counts_whole_lines(tmp_path: Path, pipe: tuple[int, int]) -> None:
    path = tmp_path / "log"
    _write(path, pipe, b"first\n" + b"y" * 40000 + b"\nlast\n")
    assert await _shown(path, tail_lines=0) == b""
    assert await _shown(path, tail_lines=1) == b"last\n"
    assert await _shown(path, tail_lines=2) == b"y" * 40000 + b"\nlast\n"
    assert await _shown(path, tail_lines=9) == b"first\n" + b"y" * 40000 + b"\nlast\n"


def test_the_last_lines_of_stored_ones() -> None:
    lines = [b"t stdout F a", b"t stdout P b", b"t stdout F c", b"t stdout F d"]
    assert last_lines(lines, 2) == lines[1:]
    assert last_lines(lines, 0) == []


def test_a_termination_message_from_the_log_is_limited(tmp_path: Path, pipe: tuple[int, int]) -> None:
    path = tmp_path / "log"
    _write(path, pipe, b"".join(b"line %04d\n" % number for number in range(500)))
    assert tail_text(path, 2, 100) == "line 0498\nline 0499\n"
    assert tail_text(path, 80, 15) == "0498\nline 0499\n"
    assert tail_text(tmp_path / "none", 80, 2048) == ""


def test_queries() -> None:
    query = {"follow": "true", "tailLines": "3", "sinceSeconds": "10", "limitBytes": "7", "timestamps": "true"}
    assert parse_request(query, 100.0) == LogRequest(True, False, True, 3, 90.0, 7)
    assert parse_request({}, 100.0) == LogRequest()
    with pytest.raises(ValueError, match="invalid literal"):
        parse_request({"tailLines": "many"}, 100.0)


def test_scripts_of_fake_pods() -> None:
    said = {"run-seconds": "2.5", "exit-code": "3", "start-seconds": "1", "term-seconds": "4", "ignore-term": "true"}
    annotations = {f"fake.devcluster/{key}": value for key, value in said.items()} | {"other": "ignored"}
    assert parse_script(annotations) == Script(1.0, 2.5, 3, None, "", 4.0, True)
    assert parse_script({"other": "x"}) == Script()
    for key, value in (("run-seconds", "soon"), ("exit-code", "1.5"), ("exit", "OOMKilled")):
        with pytest.raises(ValueError, match=r"could not convert|invalid literal"):
            parse_script({f"fake.devcluster/{key}": value})


@pytest.mark.parametrize(
    ("text", "ending"),
    [
        ("0", Ending(0, "Completed")),
        ("1", Ending(1, "Error")),
        ("137:OOMKilled", Ending(137, "OOMKilled")),
        ("1:Error:a: b", Ending(1, "Error", "a: b")),
    ],
)
def test_endings(text: str, ending: Ending) -> None:
    assert parse_ending(text) == ending
