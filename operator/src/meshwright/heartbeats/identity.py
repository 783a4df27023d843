"""Who sends a report: the API server says which pod a token belongs to.

A token is bound to its pod and made for us alone, so neither another pod's nor one for the API server is accepted.
"""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import ApiError
from meshwright.cluster.resources import TOKEN_REVIEWS
from meshwright.heartbeats.errors import NotAuthenticated, NotReady, TooMany
from meshwright_api.names import TOKEN_AUDIENCE

logger = logging.getLogger(__name__)

CACHE_SECONDS: Final = 60.0
"""For how long an answer holds; a token that is taken back is believed for as long."""
MAX_CACHED: Final = 50_000
MAX_ASKED: Final = 64
"""Questions to the API server at once: whoever sends made-up tokens must not take it away from the passes."""
_POD_NAME: Final = "authentication.kubernetes.io/pod-name"
_POD_UID: Final = "authentication.kubernetes.io/pod-uid"


@dataclass(frozen=True, slots=True)
class PodIdentity:
    """A pod, as its token proves it."""

    namespace: str
    name: str
    uid: str


class Identities:
    """Knows pods by their tokens, and remembers them for a minute, by the token's hash only."""

    def __init__(self, api: ApiServer, clock: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._clock = clock
        self._known: dict[bytes, tuple[float, PodIdentity | None]] = {}
        self._asked = 0

    async def of(self, token: str) -> PodIdentity:
        """The pod whose token this is.

        Raises:
            NotAuthenticated: it is no token of a pod for us.
            TooMany: too many tokens are being asked about.
            NotReady: the API server does not say.
        """
        digest = hashlib.sha256(token.encode(errors="replace")).digest()
        until, identity = self._known.get(digest, (float("-inf"), None))
        if self._clock() >= until:
            identity = await self._ask(token)
            self._remember(digest, identity)
        if identity is None:
            raise NotAuthenticated(f"this is no valid token of a pod for the audience {TOKEN_AUDIENCE}")
        return identity

    async def _ask(self, token: str) -> PodIdentity | None:
        if self._asked >= MAX_ASKED:
            raise TooMany("too many tokens to ask about; report again later")
        review: Json = {
            "apiVersion": f"{TOKEN_REVIEWS.group}/{TOKEN_REVIEWS.version}",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [TOKEN_AUDIENCE]},
        }
        self._asked += 1
        try:
            answer = await self._api.create(TOKEN_REVIEWS, None, review, fenced=False)
        except ApiError as error:
            logger.warning("cannot ask about an agent's token: %s", error)
            raise NotReady("the API server does not say whose token this is") from error
        finally:
            self._asked -= 1
        return reviewed(answer)

    def _remember(self, digest: bytes, identity: PodIdentity | None) -> None:
        self._known.pop(digest, None)
        while len(self._known) >= MAX_CACHED:
            del self._known[next(iter(self._known))]  # The one that was asked about first.
        self._known[digest] = (self._clock() + CACHE_SECONDS, identity)


def reviewed(review: Mapping[str, Any]) -> PodIdentity | None:
    """The pod that a TokenReview's answer names; None if it does not vouch for one, and for our audience."""
    status = review.get("status") or {}
    user = status.get("user") or {}
    # A server that knows nothing of audiences leaves them out, and would accept any token.
    if status.get("authenticated") is not True or TOKEN_AUDIENCE not in (status.get("audiences") or ()):
        return None
    extra = user.get("extra") or {}
    name, uid = (extra.get(key) or [""] for key in (_POD_NAME, _POD_UID))
    account = str(user.get("username") or "").split(":")
    if len(account) != 4 or account[:2] != ["system", "serviceaccount"] or not (name[0] and uid[0]):
        return None
    return PodIdentity(account[2], str(name[0]), str(uid[0]))
