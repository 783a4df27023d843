"""What agents say and are told, in the operator's own words. Pure; the bytes are `meshwright_agent.wire`'s."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from meshwright.heartbeats.errors import BadReport, NotAuthenticated
from meshwright.progress import Progress
from meshwright_agent import wire
from meshwright_agent.errors import Malformed

MAX_BODY: Final = wire.MAX_REPORT
MAX_TOKEN: Final = 16 * 1024
_BEARER: Final = "bearer "


def parse_report(body: bytes) -> wire.Report:
    """The report in a request's body.

    Raises:
        BadReport: there is none; the message names the field.
    """
    try:
        return wire.Report.parse(body)
    except Malformed as error:
        raise BadReport(str(error)) from error


def parse_token(authorization: str) -> str:
    """The token in an `Authorization` header.

    Raises:
        NotAuthenticated: there is none.
    """
    token = authorization[len(_BEARER) :].strip()
    if not authorization.lower().startswith(_BEARER) or not token or len(token) > MAX_TOKEN:
        raise NotAuthenticated("send the pod's token for the audience meshwright: Authorization: Bearer TOKEN")
    return token


def progress_of(report: wire.Report) -> Progress:
    """What the report says of the job's progress."""
    said = report.progress
    checkpoint = said.checkpoint
    return Progress(
        attempt=report.attempt,
        incarnation=report.incarnation,
        step=said.step,
        steps=said.steps,
        loss=said.loss,
        tokens_per_second=said.tokens_per_second,
        mfu=said.mfu,
        eta_seconds=said.eta_seconds,
        checkpoint_step=checkpoint.step if checkpoint else None,
        checkpoint_time=datetime.fromtimestamp(checkpoint.time, UTC) if checkpoint else None,
        phase=said.phase or "",
    )
