"""`Leadership`: at most one operator acts at a time, by a Lease, and one that is not sure does not write.

As in client-go, clocks of two machines are never compared: a holder is dead when *this* process has seen its record
unchanged for the record's own duration. Time is CLOCK_BOOTTIME, which goes on while a machine sleeps. A lease is no
fence by itself (a write may reach the server late), so status writes carry versions and pods have deterministic names;
this only makes double work rare and short.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from meshwright.cluster.api import ApiServer, Json
from meshwright.cluster.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, NotLeading
from meshwright.cluster.resources import LEASES
from meshwright_api import names

logger = logging.getLogger(__name__)


def boottime() -> float:
    """Seconds since boot, the time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class LeaseTimes:
    """How long a lease lasts without renewal, when its holder gives up, and how often it renews."""

    duration: float = 15.0
    renew_deadline: float = 10.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.duration:
            raise ValueError(
                f"lease times must grow: retry {self.retry_period} < renew deadline {self.renew_deadline} "
                f"< duration {self.duration}"
            )


@dataclass
class _Observed:
    """The record as this process last saw it change."""

    record: tuple[str, str, str]
    duration: float
    at: float


_RELEASE_SECONDS: Final = 2.0


class Leadership:
    """Takes, keeps and gives up the lease.

    Attributes:
        held: Set while this process leads.
        lost: Set while it does not.
        term: How many times it has become leader.
        holder: Who holds the lease, as far as is known.
        holder_address: Where the holder says that agents reach it; empty if it does not.
    """

    def __init__(
        self,
        api: ApiServer,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        address: str = "",
        on_change: Callable[[bool], None] = lambda _: None,
        clock: Callable[[], float] = boottime,
    ) -> None:
        self.identity = identity
        self.held = asyncio.Event()
        self.lost = asyncio.Event()
        self.lost.set()
        self.term = 0
        self.holder = self.holder_address = ""
        self._address = address
        self._api = api
        self._namespace = namespace
        self._name = name
        self._times = times or LeaseTimes()
        self._on_change = on_change
        self._clock = clock
        self._renewed_at = float("-inf")
        self._tried_at = clock()
        self._lease: Json | None = None
        self._observed: _Observed | None = None

    def require(self) -> None:
        """Returns if this process surely leads; called before every write.

        Raises:
            NotLeading: It does not, or the last renewal is too long ago to be sure.
        """
        if not self.held.is_set():
            raise NotLeading(f"the lease {self._namespace}/{self._name} is held by {self.holder or 'nobody'}")
        if self._remaining() <= 0:
            raise NotLeading(f"the lease was last renewed {self._clock() - self._renewed_at:.1f} s ago")

    def stuck(self) -> float:
        """Seconds since the last attempt to take or renew the lease, successful or not."""
        return self._clock() - self._tried_at

    async def run(self) -> None:
        """Takes the lease and keeps it until cancelled, then gives it up."""
        try:
            while True:
                await self.attempt()
                await asyncio.sleep(self._times.retry_period * random.uniform(0.8, 1.0))
        finally:
            await asyncio.shield(self._release())

    async def attempt(self) -> None:
        """One attempt, then a look whether leadership still holds."""
        self._tried_at = began = self._clock()
        try:
            async with asyncio.timeout(self._patience()):
                won = await self._try()
        except Forbidden as error:
            logger.error("no right to use the lease %s/%s: %s", self._namespace, self._name, error.message)
        except (ApiError, TimeoutError) as error:
            logger.warning("lease %s/%s: %s", self._namespace, self._name, error or "no answer in time")
        except Exception:
            logger.exception("lease %s/%s: unexpected; going on", self._namespace, self._name)
        else:
            if won:
                # Counted from before the request: the server's renewal is no older than that.
                self._renewed_at = began
                self._lead()
            elif self.held.is_set():
                self._stop(f"{self.holder or 'somebody'} holds the lease")
        if self.held.is_set() and self._remaining() <= 0:
            self._stop("it could not be renewed in time")

    def _patience(self) -> float:
        """An attempt may last until the deadline, not longer: the loss must be noticed in time."""
        return max(0.2, self._remaining()) if self.held.is_set() else self._times.renew_deadline

    def _remaining(self) -> float:
        return self._times.renew_deadline - (self._clock() - self._renewed_at)

    async def _try(self) -> bool:
        """Renews or takes the lease; False if somebody else holds it."""
        if self._lease is not None and self.held.is_set():
            try:
                return await self._write(self._lease)
            except (Conflict, NotFound):
                pass  # Somebody has changed it, or our own last write succeeded without an answer: look.
        try:
            lease = await self._api.get(LEASES, self._namespace, self._name, urgent=True)
        except NotFound:
            return await self._create()
        self._observe(lease)
        if self.holder not in ("", self.identity) and not self._expired():
            return False  # Also when this process led: somebody took over, and that record was only just observed.
        try:
            return await self._write(lease)
        except Conflict:
            return False

    async def _create(self) -> bool:
        body: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": self._metadata({"name": self._name, "namespace": self._namespace}),
            "spec": self._spec({}),
        }
        try:
            lease = await self._api.create(LEASES, self._namespace, body, fenced=False, urgent=True)
        except AlreadyExists:
            return False
        self._observe(lease)
        return True

    async def _write(self, lease: Json) -> bool:
        metadata = self._metadata(lease.get("metadata") or {})
        body = {**lease, "metadata": metadata, "spec": self._spec(lease.get("spec") or {})}
        written = await self._api.replace(LEASES, self._namespace, self._name, body, fenced=False, urgent=True)
        self._observe(written)
        return True

    def _metadata(self, old: Json) -> Json:
        return {**old, "annotations": {**(old.get("annotations") or {}), names.ANNOTATION_ADDRESS: self._address}}

    def _spec(self, old: Json) -> Json:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        ours = old.get("holderIdentity") == self.identity
        return {
            **old,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": math.ceil(self._times.duration),
            "acquireTime": old.get("acquireTime") if ours else now,
            "renewTime": now,
            "leaseTransitions": int(old.get("leaseTransitions") or 0) + (bool(old) and not ours),
        }

    def _observe(self, lease: Json) -> None:
        spec = lease.get("spec") or {}
        self._lease = lease
        self.holder = str(spec.get("holderIdentity") or "")
        annotations = (lease.get("metadata") or {}).get("annotations") or {}
        self.holder_address = str(annotations.get(names.ANNOTATION_ADDRESS) or "") if self.holder else ""
        record = (self.holder, str(spec.get("renewTime")), str(spec.get("leaseTransitions")))
        if self._observed is None or self._observed.record != record:
            duration = float(spec.get("leaseDurationSeconds") or self._times.duration)
            self._observed = _Observed(record, duration, self._clock())

    def _expired(self) -> bool:
        seen = self._observed
        return seen is not None and self._clock() - seen.at > seen.duration

    def _lead(self) -> None:
        if self.held.is_set():
            return
        self.term += 1
        logger.info("leading as %s (term %d)", self.identity, self.term)
        self.lost.clear()
        self.held.set()
        self._on_change(True)

    def _stop(self, why: str) -> None:
        logger.warning("no longer leading: %s", why)
        self.held.clear()
        self.lost.set()
        self._on_change(False)

    async def _release(self) -> None:
        """Gives the lease up, so that the next leader need not wait for it to expire."""
        if not self.held.is_set() or self._lease is None:
            return
        self.holder = ""
        self._stop("this process ends")
        spec = {**(self._lease.get("spec") or {}), "holderIdentity": "", "leaseDurationSeconds": 1}
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                body = {**self._lease, "spec": spec}
                await self._api.replace(LEASES, self._namespace, self._name, body, fenced=False, urgent=True)
        except (ApiError, TimeoutError) as error:
            logger.warning("the lease could not be given up, and will expire: %s", error or "no answer in time")
