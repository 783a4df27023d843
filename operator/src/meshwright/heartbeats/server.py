"""The HTTP server that agents report to.

`POST /v1/jobs/UID/heartbeats` takes a report and says which attempt is wanted; `GET /v1/jobs/UID/plan/ATTEMPT` gives an
attempt's plan. Every replica listens; the leader alone answers, and the others say where it is.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

from aiohttp import web

from meshwright.cluster.errors import NotLeading
from meshwright.cluster.lease import Leadership
from meshwright.heartbeats.directory import Directory
from meshwright.heartbeats.errors import AskTheLeader, HeartbeatError, NotAllowed, NotReady, TooLarge, UnknownJob
from meshwright.heartbeats.identity import Identities
from meshwright.heartbeats.keys import MasterKey
from meshwright.heartbeats.protocol import MAX_BODY, parse_report, parse_token, progress_of
from meshwright.heartbeats.silence import Heard, Verdict, judge
from meshwright.lifecycle.model import Pod
from meshwright.progress import ProgressBoard
from meshwright_agent.wire import Answer, Report

logger = logging.getLogger(__name__)

_BODY_SECONDS: Final = 10.0
"""After how long a body that does not arrive is given up."""
_UNEXPECTED: Final = "unexpected"


class Observer(Protocol):
    """Who counts reports (the metrics)."""

    def heartbeat(self, outcome: str) -> None:
        """One report is answered; `outcome` is `accepted`, or why it was not."""


class HeartbeatServer:
    """Takes reports, and puts what they say of progress on the board."""

    def __init__(
        self,
        directory: Directory,
        identities: Identities,
        keys: MasterKey,
        leadership: Leadership,
        board: ProgressBoard,
        observer: Observer,
        *,
        interval_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory, self._identities, self._keys = directory, identities, keys
        self._leadership, self._board, self._observer = leadership, board, observer
        self._interval = interval_seconds
        self._clock = clock
        self._heard: dict[str, Heard] = {}
        self._term, self._listening_since = -1, 0.0

    async def run(self, address: str, port: int) -> None:
        """Serves until cancelled.

        Raises:
            OSError: the port cannot be used.
        """
        runner = web.AppRunner(self.application(), access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        try:
            await web.TCPSite(runner, address, port).start()
            logger.info("agents may report to port %d", port)
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    def application(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=MAX_BODY, middlewares=(self._errors,))
        app.router.add_post("/v1/jobs/{uid}/heartbeats", self._take_report)
        app.router.add_get("/v1/jobs/{uid}/plan/{attempt}", self._give_plan)
        return app

    def verdicts(self) -> Counter[Verdict]:
        """How many jobs are heard, and how many have fallen silent; may be asked from another thread."""
        found: Counter[Verdict] = Counter()
        for uid, heard in tuple(self._heard.items()):
            timeout = self._directory.heartbeat_timeout(uid)
            if timeout is not None:
                since = self._listening_since
                found[
                    judge(heard, attempt=heard.attempt, now=self._clock(), listening_since=since, timeout=timeout)
                ] += 1
        return found

    async def _take_report(self, request: web.Request) -> web.Response:
        self._require_leadership()
        uid = request.match_info["uid"]
        pod = await self._sender(request, uid)
        report = parse_report(await _body(request))
        _require_honesty(report, pod)
        wanted = self._directory.wanted(uid)
        if report.attempt > wanted.attempt:
            raise NotReady(f"attempt {report.attempt} is not known yet")
        self._note(uid, report)
        answer = Answer(
            attempt=wanted.attempt,
            plan_sha256=wanted.plan_sha256,
            rank0_ip=self._directory.rank0_address(uid),
            # The key of the attempt that the pod works by, even if a newer one is wanted: it opens no newer one.
            key=await self._keys.for_attempt(uid, report.attempt),
            interval_seconds=self._interval,
        )
        self._observer.heartbeat("accepted")
        return web.json_response(answer.to_json())

    async def _give_plan(self, request: web.Request) -> web.Response:
        self._require_leadership()
        uid, attempt = request.match_info["uid"], request.match_info["attempt"]
        await self._sender(request, uid)
        if not (attempt.isascii() and attempt.isdecimal() and len(attempt) < 10):
            raise UnknownJob(f"an attempt is a number, not {attempt[:20]!r}")
        text = await self._directory.plan_text(uid, int(attempt))
        return web.Response(text=text, content_type="application/json")

    def _require_leadership(self) -> None:
        """Raises AskTheLeader unless this process leads; a new term begins to listen anew."""
        try:
            self._leadership.require()
        except NotLeading:
            raise AskTheLeader(self._leadership.holder_address) from None
        if self._leadership.term != self._term:
            self._term, self._listening_since = self._leadership.term, self._clock()
            self._heard.clear()

    async def _sender(self, request: web.Request, job_uid: str) -> Pod:
        token = parse_token(request.headers.get("Authorization", ""))
        return self._directory.member(job_uid, await self._identities.of(token))

    def _note(self, uid: str, report: Report) -> None:
        known, now = self._heard.get(uid), self._clock()
        if known is None:
            self._heard = {u: heard for u, heard in self._heard.items() if self._directory.exists(u)}
        self._heard[uid] = known.again(report.attempt, now) if known else Heard(report.attempt, now, now)
        self._board.report(uid, progress_of(report))

    @web.middleware
    async def _errors(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Every refusal as JSON, and counted."""
        try:
            return await handler(request)
        except HeartbeatError as error:
            more = {"leader": error.leader} if isinstance(error, AskTheLeader) else {}
            return self._refusal(error.status, error.reason, str(error), more)
        except web.HTTPException as error:
            return self._refusal(error.status, "unknown" if error.status == 404 else "malformed", error.reason, {})
        except Exception:
            logger.exception("a report could not be answered")
            return self._refusal(500, _UNEXPECTED, "the operator failed; see its log", {})

    def _refusal(self, status: int, reason: str, message: str, more: Mapping[str, str]) -> web.Response:
        self._observer.heartbeat(reason)
        headers = {"Retry-After": "10"} if status in (429, 503) else {}
        return web.Response(
            status=status,
            text=json.dumps({"error": message, "reason": reason, **more}),
            content_type="application/json",
            headers=headers,
        )


def _require_honesty(report: Report, pod: Pod) -> None:
    """A pod speaks for itself; nobody's figures come under another's name."""
    said = (report.pod, report.role, report.index, report.incarnation)
    if said != (pod.name, pod.identity.role, pod.identity.index, pod.identity.incarnation):
        raise NotAllowed(f"the report names pod {report.pod}, and the token is of pod {pod.name}")


async def _body(request: web.Request) -> bytes:
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise TooLarge(f"a report has at most {MAX_BODY} bytes") from None
