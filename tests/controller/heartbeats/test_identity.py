"""What a TokenReview vouches for; the shapes are those of a real API server's answers."""

from __future__ import annotations

import hashlib
import hmac
from typing import Any

import pytest

from meshwright.heartbeats.errors import NotAuthenticated
from meshwright.heartbeats.identity import PodIdentity, reviewed
from meshwright.heartbeats.keys import derive, secret_name
from meshwright.heartbeats.protocol import parse_token


def review(**changes: Any) -> dict[str, Any]:
    user = {
        "username": "system:serviceaccount:team:default",
        "groups": ["system:serviceaccounts"],
        "extra": {
            "authentication.kubernetes.io/pod-name": ["gpt-worker-0-1"],
            "authentication.kubernetes.io/pod-uid": ["uid-1"],
            "authentication.kubernetes.io/node-name": ["n1"],
        },
    }
    status = {"authenticated": True, "audiences": ["meshwright"], "user": user}
    return {"status": {**status, **changes}}


def test_a_pods_token_names_the_pod() -> None:
    assert reviewed(review()) == PodIdentity("team", "gpt-worker-0-1", "uid-1")


EXTRA = review()["status"]["user"]["extra"]


@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("refused", {"authenticated": False}),
        ("no word", {"authenticated": None}),
        ("not quite true", {"authenticated": "true"}),
        ("another audience", {"audiences": ["https://kubernetes.default.svc"]}),
        ("a server without audiences", {"audiences": None}),
        ("a person", {"user": {"username": "jane", "extra": EXTRA}}),
        ("a node", {"user": {"username": "system:node:n1", "extra": EXTRA}}),
        ("a token bound to no pod", {"user": {"username": "system:serviceaccount:team:default"}}),
        (
            "an empty binding",
            {"user": {"username": "system:serviceaccount:team:a", "extra": {key: [] for key in EXTRA}}},
        ),
        ("nothing", {"user": None}),
    ],
)
def test_what_is_no_pod_for_us(case: str, changes: dict[str, Any]) -> None:
    assert reviewed(review(**changes)) is None, case


def test_an_empty_answer_vouches_for_nobody() -> None:
    assert reviewed({}) is None


def test_keys_are_of_one_job_and_one_attempt() -> None:
    master = bytes(range(32))
    assert derive(master, "u", 3) == hmac.new(master, b"u\n3", hashlib.sha256).hexdigest()
    assert len({derive(master, uid, attempt) for uid in ("u", "u1", "v") for attempt in (1, 2, 11)}) == 9
    assert secret_name("meshwright-operator") == "meshwright-operator-keys"


@pytest.mark.parametrize("header", ["", "Bearer", "Bearer ", "Basic abc", "abc", "Bearer " + "x" * 20_000])
def test_a_header_without_a_token(header: str) -> None:
    with pytest.raises(NotAuthenticated, match="Authorization: Bearer"):
        parse_token(header)


@pytest.mark.parametrize("header", ["Bearer abc", "bearer abc", "BEARER  abc "])
def test_a_header_with_a_token(header: str) -> None:
    assert parse_token(header) == "abc"
