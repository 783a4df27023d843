"""A client of the real API server that tells what it said, for whomever asks."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from meshwright_api import names

Json = dict[str, Any]
GROUP_PATH = f"/apis/{names.API_VERSION}"


@dataclass(frozen=True)
class Answer:
    """What the API server said."""

    code: int
    body: Json

    @property
    def allowed(self) -> bool:
        return self.code < 300

    @property
    def message(self) -> str:
        return str(self.body.get("message", ""))


class Client:
    """One kept connection; not for several threads."""

    def __init__(self, server: str, ca: Path, token: str, impersonate: str = "") -> None:
        where = urlsplit(server)
        context = ssl.create_default_context(cafile=str(ca))
        self._connection = http.client.HTTPSConnection(where.hostname or "", where.port, context=context, timeout=60)
        self._headers = {"Authorization": f"Bearer {token}"}
        if impersonate:
            self._headers["Impersonate-User"] = impersonate

    def call(self, verb: str, path: str, body: Json | None = None, kind: str = "application/json") -> Answer:
        headers = self._headers | {"Content-Type": kind}
        data = None if body is None else json.dumps(body)
        try:
            return self._once(verb, path, data, headers)
        except (http.client.RemoteDisconnected, ssl.SSLEOFError, ConnectionError):
            # The server closes connections that were idle for long.
            return self._once(verb, path, data, headers)

    def _once(self, verb: str, path: str, data: str | None, headers: dict[str, str]) -> Answer:
        try:
            self._connection.request(verb, path, data, headers)
            with self._connection.getresponse() as response:
                text = response.read()
                is_json = response.headers.get_content_type() == "application/json"
                return Answer(response.status, json.loads(text) if is_json else {"message": text.decode()})
        except BaseException:
            self._connection.close()  # the next call opens it anew, instead of failing with this one's remains
            raise

    def ask(self, verb: str, path: str, body: Json | None = None, kind: str = "application/json") -> Json:
        """As `call`, for what must succeed."""
        answer = self.call(verb, path, body, kind)
        assert answer.allowed, f"{verb} {path}: {answer.code} {answer.message}"
        return answer.body

    def create(self, job: Json, *, dry_run: bool = False) -> Answer:
        query = "?dryRun=All" if dry_run else ""
        return self.call("POST", f"{jobs_path(job['metadata']['namespace'])}{query}", job)

    def replace(self, job: Json) -> Answer:
        """Puts the job in the place of the stored one, whatever its version."""
        version = self.ask("GET", job_path(job))["metadata"]["resourceVersion"]
        return self.call("PUT", job_path(job), {**job, "metadata": {**job["metadata"], "resourceVersion": version}})

    def set_status(self, job: Json, **status: Any) -> Json:
        return self.ask("PATCH", f"{job_path(job)}/status", {"status": status}, "application/merge-patch+json")

    def get(self, job: Json) -> Answer:
        return self.call("GET", job_path(job))

    def close(self) -> None:
        self._connection.close()


def jobs_path(namespace: str) -> str:
    return f"{GROUP_PATH}/namespaces/{namespace}/{names.PLURAL}"


def job_path(job: Json) -> str:
    return f"{jobs_path(job['metadata']['namespace'])}/{job['metadata']['name']}"


def eventually(holds: Callable[[], bool], what: str, seconds: float = 30) -> None:
    """Waits for what the API server does in its own time."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, f"not within {seconds:.0f} s: {what}"
        time.sleep(0.05)
