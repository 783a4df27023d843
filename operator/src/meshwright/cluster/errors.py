"""What can go wrong between the operator and the API server, as one tree.

    ClusterError
    |- ConfigError            no usable kubeconfig or service account: final, a person has to act
    |- NotLeading             the lease is lost or too old: nothing may be written
    `- ApiError               the API server refused, failed, or could not be reached
       |- Unreachable         no answer: refused, reset, timed out. The request may have been carried out
       |- ServerError         5xx. The request may have been carried out
       |- TooManyRequests     429, with the server's wish in `retry_after`
       |- Unauthorized        401
       |- Forbidden           403: a right is missing, or admission or a quota refused
       |- NotFound            404
       |- AlreadyExists       409 on create
       |- Conflict            409: changed since it was read, or a precondition failed
       |- Gone                410: the resource version or continue token is too old
       `- Invalid             422: the object itself is refused

Whether the same call may succeed later without anybody changing it is a property of the type: `retryable`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar


class ClusterError(Exception):
    """Base of everything that this package raises on purpose."""

    retryable: ClassVar[bool] = False


class ConfigError(ClusterError):
    """There is no way to find or to authenticate at the API server, and waiting does not help."""


class NotLeading(ClusterError):
    """This process does not hold the lease, or cannot be sure to: it must not write."""


class ApiError(ClusterError):
    """The API server's answer to a request that did not succeed.

    Attributes:
        status: HTTP status; 0 when there was no answer.
        reason: The Status object's machine-readable reason (`AlreadyExists`, `Forbidden`, ...).
        message: The Status object's message, for people.
        details: The Status object's details (`causes` name the fields that were refused).
        retry_after: Seconds that the server asked to wait, if it did.
    """

    def __init__(
        self,
        status: int,
        reason: str = "",
        message: str = "",
        details: Mapping[str, Any] | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(": ".join(filter(None, (f"{status or 'no answer'} {reason}".strip(), message))))
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after


class Unreachable(ApiError):
    """No answer came; whether the request was carried out is unknown."""

    retryable = True


class ServerError(ApiError):
    """The API server failed; whether the request was carried out is unknown."""

    retryable = True


class TooManyRequests(ApiError):
    """The API server asks to slow down, or an eviction is blocked by a disruption budget."""

    retryable = True


class Unauthorized(ApiError):
    """The token is not accepted, and reading it again gave no other; a rotated one may come."""

    retryable = True


class Forbidden(ApiError):
    """A right is missing, or admission or a quota refused; `message` says which."""


class NotFound(ApiError):
    """The object, or its kind, does not exist."""


class AlreadyExists(ApiError):
    """An object of this name exists."""


class Conflict(ApiError):
    """The object is not the one that was read: read it again and decide again."""


class Gone(ApiError):
    """The resource version or continue token is too old to go on from: list again."""


class Invalid(ApiError):
    """The object is refused as it is; `details["causes"]` names the fields."""


def refuses(error: ApiError) -> bool:
    """Whether the answer is a no to what was asked, rather than a failure to answer.

    A right, a quota or an admission plugin says 403, validation 422, a webhook whatever it likes and by default 400. A
    webhook that cannot be reached makes a 500, which only its operator can mend.
    """
    if isinstance(error, Forbidden | Invalid):
        return True
    return error.status == 400 or (isinstance(error, ServerError) and "webhook" in error.message)


_BY_STATUS: dict[int, type[ApiError]] = {
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooManyRequests,
}


def from_status(code: int, body: object, retry_after: float | None = None) -> ApiError:
    """The error that an answer means; `body` is the Status object, or whatever came instead of one."""
    status = body if isinstance(body, Mapping) and body.get("kind") == "Status" else {}
    details = status.get("details")
    details = details if isinstance(details, Mapping) else {}
    text = body.strip() if isinstance(body, str) else ""
    reason, message = str(status.get("reason") or ""), str(status.get("message") or text)
    if retry_after is None and isinstance(details.get("retryAfterSeconds"), int | float):
        retry_after = float(details["retryAfterSeconds"]) or None
    kind = _BY_STATUS.get(code, ServerError if code >= 500 else ApiError)
    if kind is Conflict and reason == "AlreadyExists":
        kind = AlreadyExists
    return kind(code, reason, message, details, retry_after)
