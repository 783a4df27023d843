"""Commands that run in the background while one display shows how far they are."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from needs import SetupError

_LAST_LINES = 20
_MILESTONES = {"Resolved": 0.02, "Prepared": 0.8, "Installed": 0.9}
"""How far a job is at least when it says so: what lies in uv's cache is linked, not written."""


@dataclass
class Job:
    """A command, what it is doing now in a few words, and the share of it that is done (None: not known)."""

    name: str
    command: Sequence[str]
    log: Path
    expected_bytes: int = 0
    """How much it writes when it starts from nothing; 0: it reports its progress itself, as JSON lines."""
    text: str = "starting"
    share: float | None = None
    _tail: deque[str] = field(default_factory=lambda: deque(maxlen=_LAST_LINES))

    def start(self) -> Job:
        """Starts the command and begins to read what it says."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self._log = self.log.open("w")
        self.started_at = time.monotonic()
        self.seconds = 0.0
        self._process = subprocess.Popen(
            self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        self._readers = [
            threading.Thread(target=self._read, args=(stream, reports), daemon=True)
            for stream, reports in ((self._process.stdout, not self.expected_bytes), (self._process.stderr, False))
        ]
        for reader in self._readers:
            reader.start()
        return self

    def running(self) -> bool:
        """Whether it still runs; brings what the display shows up to date.

        Raises:
            SetupError: it failed.
        """
        code = self._process.poll()
        if code is None:
            self.seconds = time.monotonic() - self.started_at
            self._measure()
            return True
        for reader in self._readers:
            reader.join()
        self._log.close()
        if code:
            raise SetupError(f"{self.name} failed ({code}); the whole log is {self.log}\n" + "\n".join(self._tail))
        self.text, self.share = "done", 1.0
        return False

    def stop(self) -> None:
        """Ends the command, if it runs."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def _read(self, stream: IO[str], reports: bool) -> None:
        with stream:
            for line in stream:
                self._log.write(line)
                if reports and line.startswith("{"):
                    self._take(json.loads(line))
                elif line.strip():
                    self._tail.append(line.rstrip())
                    if self.expected_bytes:
                        self._hear(line.strip())

    def _take(self, report: dict[str, object]) -> None:
        done, total = report.get("done"), report.get("total")
        if isinstance(done, int) and isinstance(total, int):
            self.text = f"{report.get('step')} {done}/{total}" if total else f"{report.get('step')}"
            self.share = done / total if total else None

    def _hear(self, line: str) -> None:
        self.text = line[:40]
        if line.startswith("Installed"):
            self.text = "compiling bytecode"
        self.share = max(self.share or 0.0, _MILESTONES.get(line.split()[0], 0.0))

    def _measure(self) -> None:
        """Reads from the kernel what the process has written: packages report whole files only, and torch is large."""
        if not self.expected_bytes:
            return
        with suppress(OSError, ValueError):
            counters = dict(line.split(": ") for line in Path(f"/proc/{self._process.pid}/io").read_text().splitlines())
            written = min(int(counters["wchar"]) / self.expected_bytes, 0.99)
            self.share = max(self.share or 0.0, written)
