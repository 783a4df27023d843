"""The failure policy's two budgets: charged restarts and free disruptions, each within a sliding window."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from meshwright.lifecycle.model import Policy


def within_window(moments: Iterable[datetime], policy: Policy, now: datetime) -> tuple[datetime, ...]:
    """Those moments that still count, oldest first."""
    start = now - timedelta(seconds=policy.window_seconds)
    return tuple(moment for moment in moments if moment > start)


def restarts_left(charged: Iterable[datetime], policy: Policy, now: datetime) -> int:
    """How many more charged restarts the policy allows now."""
    return policy.max_restarts - len(within_window(charged, policy, now))


def disruptions_left(disruptions: Iterable[datetime], policy: Policy, now: datetime) -> int:
    """How many more free restarts the policy allows now."""
    return policy.max_disruptions - len(within_window(disruptions, policy, now))
