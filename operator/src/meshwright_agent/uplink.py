"""Reports to the operator: one small HTTP request, with the pod's own token."""

from __future__ import annotations

import http.client
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

from meshwright_agent.errors import Malformed, Unanswered
from meshwright_agent.wire import MAX_REPORT, Answer, Report, dump, parse_object

TOKEN_FILE = "/var/run/secrets/meshwright/token"
TIMEOUT_SECONDS = 5.0


class Uplink:
    """The way to the operator that leads.

    Any replica may be asked; one that does not lead says who does, and is believed until that one fails.
    """

    def __init__(
        self, url: str, job_uid: str, token_file: str = TOKEN_FILE, timeout_seconds: float = TIMEOUT_SECONDS
    ) -> None:
        self._url = url
        self._path = f"/v1/jobs/{quote(job_uid, safe='')}/heartbeats"
        self._token_file = token_file
        self._timeout = timeout_seconds
        self._leader: str | None = None

    def send(self, report: Report, timeout_seconds: float | None = None) -> Answer:
        """Sends a report.

        Raises:
            Unanswered: no usable answer came; the message says why.
        """
        try:
            status, body = self._post(self._leader or self._url, report, timeout_seconds)
            if status == 421:
                self._leader = _leader(body)
                status, body = self._post(self._leader, report, timeout_seconds)
            if status != 200:
                raise Unanswered(f"the operator answers {status}: {_reason(body)}")
            return Answer.parse(body)
        except Unanswered:
            self._leader = None
            raise
        except (OSError, ValueError, http.client.HTTPException, Malformed) as error:
            self._leader = None
            raise Unanswered(f"no answer from the operator: {type(error).__name__}: {error}") from error

    def _post(self, url: str, report: Report, timeout_seconds: float | None) -> tuple[int, bytes]:
        parts = urlsplit(url)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        # Not through a proxy that the image's variables name: the operator is inside the cluster.
        connection = kind(parts.hostname or "", parts.port, timeout=timeout_seconds or self._timeout)
        try:
            connection.request(
                "POST", parts.path.rstrip("/") + self._path, dump(report.to_json()), headers=self._headers()
            )
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_REPORT + 1)
        finally:
            connection.close()

    def _headers(self) -> Mapping[str, str]:
        # Read each time: the kubelet replaces it well before it expires.
        token = Path(self._token_file).read_text().strip()
        return {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def _leader(body: bytes) -> str:
    """The address in the answer of an operator that does not lead."""
    leader = parse_object(body, MAX_REPORT).get("leader")
    if not isinstance(leader, str) or urlsplit(leader).scheme not in ("http", "https"):
        raise Unanswered("the operator that was asked does not lead, and does not know who does")
    return leader


def _reason(body: bytes) -> str:
    try:
        return str(parse_object(body, MAX_REPORT).get("error"))[:200]
    except Malformed:
        return repr(body[:80])
