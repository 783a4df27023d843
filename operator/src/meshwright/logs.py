"""The operator's log: one line per record, as JSON or text, with the job's key in it and never a secret.

A pass names its job once, `with logs.job("team-a/gpt"):`, and every record below it carries the key; a single record
may bring its own, `extra={"job": ...}`.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal, TextIO

LogFormat = Literal["json", "text"]

REDACTED: Final = "[redacted]"
_SHAPES: Final = re.compile(
    r"eyJ[\w-]{8,}\.[\w-]{4,}\.[\w-]*"  # JSON web tokens
    r"|(?i:(?<=bearer )|(?<=basic ))[\w.~+/=-]{8,}"  # whatever follows an authorization scheme
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)",
    re.DOTALL,
)
_known: deque[str] = deque(maxlen=64)
"""Secrets that this process was given. Bounded: tokens rotate, and old ones are refused anyway."""

_job: ContextVar[str] = ContextVar("job", default="")


@contextmanager
def job(key: str) -> Iterator[None]:
    """Every record logged inside carries `key`, the job's `namespace/name`."""
    token = _job.set(key)
    try:
        yield
    finally:
        _job.reset(token)


def never_log(secret: str) -> None:
    """From now on, `secret` is blotted out of every record."""
    if len(secret) >= 8 and secret not in _known:
        _known.append(secret)


def redact(text: str) -> str:
    """`text` without anything that is known to be, or looks like, a secret."""
    for secret in _known:
        text = text.replace(secret, REDACTED)
    return _SHAPES.sub(REDACTED, text)


class _Formatter(logging.Formatter):
    """Redacts after everything is put together, so that arguments and tracebacks are covered too."""

    def format(self, record: logging.LogRecord) -> str:
        message = record.getMessage()
        if record.exc_info:
            message += "\n" + self.formatException(record.exc_info)
        return self.render(record, redact(message), str(getattr(record, "job", "") or _job.get()))

    def render(self, record: logging.LogRecord, message: str, job_key: str) -> str:
        raise NotImplementedError


class JsonFormatter(_Formatter):
    """One JSON object per line: `time`, `level`, `logger`, `message`, and `job` where there is one."""

    def render(self, record: logging.LogRecord, message: str, job_key: str) -> str:
        """The record as one line of JSON."""
        line = {"time": _time(record), "level": record.levelname, "logger": record.name, "message": message}
        return json.dumps(line | ({"job": job_key} if job_key else {}), ensure_ascii=False)


class TextFormatter(_Formatter):
    """For people: `time level logger [job] message`."""

    def render(self, record: logging.LogRecord, message: str, job_key: str) -> str:
        """The record as one line of text (more when it has a traceback)."""
        where = f" [{job_key}]" if job_key else ""
        return f"{_time(record)} {record.levelname:<7} {record.name}{where} {message}"


def configure(log_format: LogFormat, level: str = "INFO", stream: TextIO | None = None) -> None:
    """Sends every record of this process through one handler that redacts."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    # Kopf tells of each call of each handler; its handlers here only wake others, who tell what they do.
    for chatty in ("aiohttp.access", "asyncio", "kopf.objects", "kopf.activities"):
        logging.getLogger(chatty).setLevel(max(logging.WARNING, root.level))


def _time(record: logging.LogRecord) -> str:
    moment = datetime.fromtimestamp(record.created, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
