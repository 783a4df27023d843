"""An operator in a thread, as agents see it: it notes what it is told and answers what the test wants."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

KEY = "ab" * 32


class FakeOperator:
    """The server.

    Attributes:
        reports: What came in, oldest first.
        tokens: The tokens that came with it.
        answer: The answer's body.
        status: The answer's status.
    """

    def __init__(self) -> None:
        self.reports: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.paths: list[str] = []
        self.status = 200
        self.answer: dict[str, Any] = {"attempt": 3, "planSHA256": "", "rank0": {"ip": "127.0.0.1"}, "key": KEY}
        operator = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                operator.paths.append(self.path)
                operator.tokens.append(self.headers["Authorization"])
                operator.reports.append(json.loads(body))
                answer = json.dumps(operator.answer).encode()
                self.send_response(operator.status)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def of(self, index: int) -> list[dict[str, Any]]:
        """Reports that pod `index` sent itself."""
        return [report for report in self.reports if report["index"] == index]
