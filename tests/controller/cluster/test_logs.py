from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from meshwright import logs

CANARY = "canary-4711-secret"
TOKEN = "eyJhbGciOiJSUzI1NiIsImtpZCI6IngifQ.eyJzdWIiOiJzeXN0ZW0ifQ.c2lnbmF0dXJl"


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    stream = io.StringIO()
    logs.configure("json", "DEBUG", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)


def test_a_line_of_json_with_the_jobs_key(log: io.StringIO) -> None:
    with logs.job("team/gpt"):
        logging.getLogger("meshwright.x").warning("%d pods", 3)
    logging.getLogger("meshwright.x").info("outside")
    logging.getLogger("meshwright.x").info("its own", extra={"job": "team/other"})

    first, second, third = map(json.loads, log.getvalue().splitlines())
    assert first["time"].endswith("Z")
    assert {**first, "time": ""} == {
        "time": "", "level": "WARNING", "logger": "meshwright.x", "message": "3 pods", "job": "team/gpt",
    }  # fmt: skip
    assert "job" not in second
    assert third["job"] == "team/other"


def test_text_for_people() -> None:
    record = logging.LogRecord("meshwright.x", logging.INFO, "f", 1, "%s", ("text",), None)
    with logs.job("team/gpt"):
        assert logs.TextFormatter().format(record).endswith("INFO    meshwright.x [team/gpt] text")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_a_known_secret_is_in_no_part_of_any_line(log_format: logs.LogFormat, log: io.StringIO) -> None:
    logs.configure(log_format, "DEBUG", log)
    logs.never_log(CANARY)
    logger = logging.getLogger("any")
    logger.info(CANARY)
    logger.info("argument %s and %r", CANARY, {"token": CANARY})
    try:
        raise ValueError(f"refused {CANARY}")
    except ValueError:
        logger.exception("failed: %s", CANARY)
    assert CANARY not in log.getvalue()
    assert log.getvalue().count(logs.REDACTED) >= 5
    assert "Traceback" in log.getvalue()


@pytest.mark.parametrize(
    "text",
    [
        f"token {TOKEN}",
        "headers: {'Authorization': 'Bearer abcdefgh12345678'}",
        "Authorization: Basic dXNlcjpwYXNzd29yZA==",
        "-----BEGIN RSA PRIVATE KEY-----\nabc\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nabc that was cut",
    ],
)
def test_what_looks_like_a_secret_is_blotted_out(text: str) -> None:
    shown = logs.redact(text)
    assert logs.REDACTED in shown
    assert not {"abcdefgh12345678", "dXNlcjpwYXNzd29yZA==", "abc", TOKEN} & set(shown.split())


def test_ordinary_words_stay() -> None:
    text = 'pods "gpt-1a2b3-worker-0-1" is forbidden: exceeded quota: gpus, requested: 8; the bearer of bad news'
    logs.never_log("short")
    assert logs.redact(text + " short") == text + " short"


def test_old_secrets_are_forgotten_in_the_end() -> None:
    for number in range(200):
        logs.never_log(f"secret-number-{number}")
    assert len(logs._known) <= 64
