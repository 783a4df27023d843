"""The time, as the API writes it."""

from __future__ import annotations

from datetime import UTC, datetime


def now() -> str:
    """RFC 3339 with whole seconds, as in pod statuses."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def precise_now() -> str:
    """RFC 3339 with microseconds, as in Leases and Events."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def parse(text: str) -> float:
    """Seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()
