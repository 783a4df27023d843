from __future__ import annotations

import pytest

from meshwright.cluster import errors

STATUS = {"kind": "Status", "reason": "Because", "message": "so it is", "details": {"causes": [{"field": "spec.x"}]}}


@pytest.mark.parametrize(
    ("code", "reason", "kind", "retryable"),
    [
        (400, "BadRequest", errors.ApiError, False),
        (401, "Unauthorized", errors.Unauthorized, True),
        (403, "Forbidden", errors.Forbidden, False),
        (404, "NotFound", errors.NotFound, False),
        (409, "Conflict", errors.Conflict, False),
        (409, "AlreadyExists", errors.AlreadyExists, False),
        (410, "Expired", errors.Gone, False),
        (422, "Invalid", errors.Invalid, False),
        (429, "TooManyRequests", errors.TooManyRequests, True),
        (500, "InternalError", errors.ServerError, True),
        (503, "ServiceUnavailable", errors.ServerError, True),
        (504, "Timeout", errors.ServerError, True),
    ],
)
def test_each_status_is_one_type_that_says_whether_to_retry(
    code: int, reason: str, kind: type[errors.ApiError], retryable: bool
) -> None:
    error = errors.from_status(code, STATUS | {"reason": reason})

    assert type(error) is kind
    assert error.retryable is retryable
    assert (error.status, error.reason, error.message) == (code, reason, "so it is")
    assert error.details["causes"][0]["field"] == "spec.x"


@pytest.mark.parametrize("body", [None, "Bad gateway", [], {"kind": "Other"}, {"kind": "Status", "details": 7}])
def test_an_answer_that_is_no_status_object_is_still_an_error(body: object) -> None:
    assert type(errors.from_status(502, body)) is errors.ServerError


def test_the_wish_to_wait_is_taken_from_the_header_or_the_details() -> None:
    body = {"kind": "Status", "details": {"retryAfterSeconds": 3}}

    assert errors.from_status(429, body, 5.0).retry_after == 5.0
    assert errors.from_status(429, body).retry_after == 3.0
    assert errors.from_status(429, {}).retry_after is None


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.from_status(404, "404 page not found\n"), "404: 404 page not found"),
        (
            errors.from_status(409, {"kind": "Status", "reason": "Conflict", "message": "changed"}),
            "409 Conflict: changed",
        ),
        (errors.Unreachable(0, "TimeoutError"), "no answer TimeoutError"),
    ],
)
def test_what_is_said_of_an_error(error: errors.ApiError, text: str) -> None:
    assert str(error) == text


def test_the_tree_has_one_root() -> None:
    assert all(
        issubclass(kind, errors.ClusterError)
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    )
