"""Why a report is not accepted; each is one HTTP answer.

HeartbeatError
├── BadReport          400
├── NotAuthenticated   401
├── NotAllowed         403
├── UnknownJob         404
├── TooLarge           413
├── AskTheLeader       421
├── TooMany            429
└── NotReady           503
"""

from __future__ import annotations

from typing import ClassVar


class HeartbeatError(Exception):
    """Root of the errors; the message is for whoever reads the agent's log."""

    status: ClassVar[int] = 500
    reason: ClassVar[str] = ""
    """Label in the metrics."""


class BadReport(HeartbeatError):
    """The body is no report; the message names the field."""

    status, reason = 400, "malformed"


class NotAuthenticated(HeartbeatError):
    """There is no token, or it is not one of a pod for us."""

    status, reason = 401, "unauthenticated"


class NotAllowed(HeartbeatError):
    """The token is of a pod that may not speak for this job."""

    status, reason = 403, "forbidden"


class UnknownJob(HeartbeatError):
    """There is no such job, or no such plan of it."""

    status, reason = 404, "unknown"


class TooLarge(HeartbeatError):
    """The body is larger than any report."""

    status, reason = 413, "too_large"


class AskTheLeader(HeartbeatError):
    """This process does not lead.

    Attributes:
        leader: Where the one that leads is reached; empty if that is not known.
    """

    status, reason = 421, "not_leading"

    def __init__(self, leader: str) -> None:
        super().__init__("this operator does not lead")
        self.leader = leader


class TooMany(HeartbeatError):
    """More unknown tokens at once than may be asked about."""

    status, reason = 429, "too_many"


class NotReady(HeartbeatError):
    """The report cannot be judged now: the API server does not answer, or has not told everything yet."""

    status, reason = 503, "not_ready"
